"""The parts of `python benchmarks/accelerator.py`: checks and measurements on a GPU.

The main process starts no device. All measurements run in child processes, so that a crash, an unknown flag or a full
memory ends only one of them, and each process has the device to itself.

    children.py   starts child processes, reads their records, ends them at their time limit or with the parent
    child.py      the main function of a child process
    day.py        the queue of cases, the budget, the report
    the other modules are the parts
"""
