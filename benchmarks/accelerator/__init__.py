"""The parts of `python benchmarks/accelerator.py`: what a day with a GPU, or ten minutes of it, checks and measures.

The command's own process starts no device. Whatever is measured runs in child processes, so that a crash, an unknown
flag or a full memory ends one of them and not the day, and each has the device to itself.

    children.py   starts them, takes what they say line by line, ends them with their time or with the parent
    child.py      what such a process does
    day.py        the queue of cases, the budget, the file
    machine.py, agreement.py, resume.py, speed.py, convolving.py, selecting.py, variants.py      the parts
"""
