"""The house: imports run one way, public names stand, and what is light stays light."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.core import files

PACKAGE = Path(fedjax_sel.__file__).parent

BOTTOM = {"core", "errors", "version"}
MAY_IMPORT = {
    "version": set(),
    "errors": set(),
    "metrics": set(),
    "statistics": set(),
    "timing": {"core", "errors"},
    "tasks": set(),
    "core": {"errors"},
    "numerics": {"core"},
    "config": BOTTOM,
    "papers": BOTTOM | {"config"},
    "data": BOTTOM | {"timing"},
    "models": BOTTOM,
    "devices": BOTTOM | {"data"},
    "strategies": BOTTOM | {"numerics"},
    "training": BOTTOM | {"data", "models", "numerics", "tasks"},
    "experiment": BOTTOM | {"config", "data", "devices", "models", "strategies", "tasks", "timing", "training"},
    "simulation": BOTTOM
    | {"data", "devices", "experiment", "metrics", "models", "numerics", "strategies", "tasks", "timing", "training"},
    "testing": BOTTOM | {"config", "devices", "simulation", "strategies"},
    "selector": BOTTOM | {"numerics", "simulation", "strategies"},
    "adapters": BOTTOM | {"selector", "simulation", "strategies"},
    "logs": BOTTOM,
    "callbacks": BOTTOM | {"logs"},
    "runs": BOTTOM
    | {"callbacks", "config", "data", "devices", "experiment", "metrics", "models", "simulation", "strategies"}
    | {"tasks", "training"},
    "reporting": BOTTOM | {"callbacks", "config", "experiment", "logs", "metrics", "papers", "runs", "statistics"},
}
COMMANDS = {"cli", "train", "__init__"}  # they parse, call and print
PUBLIC = {
    "__init__",
    "__main__",
    "callbacks",
    "devices",
    "errors",
    "logs",
    "metrics",
    "papers",
    "statistics",
    "tasks",
    "timing",
    "train",
    "version",
}


def imports(path):
    """The rooms of the package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not getattr(node, "level", 0), f"{path}: a relative import"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "fedjax_sel":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from [a.name.split(".")[1] for a in node.names if a.name.startswith("fedjax_sel.")]


def test_imports_run_one_way():
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()  # raises an error if there is a cycle
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room not in COMMANDS and path.name != "__main__.py":
            assert room in MAY_IMPORT, f"{path} stands in a room that the table does not know"
            assert set(imports(path)) - {room} <= MAY_IMPORT[room], path


def test_nothing_is_unpickled():
    forbidden = {"pickle", "dill", "joblib", "shelve", "marshal"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                assert not {module.split(".")[0] for module in modules} & forbidden, path
            elif isinstance(node, ast.Call):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                loads = ast.unparse(node.func) in ("np.load", "numpy.load")
                assert given.get("allow_pickle", "" if loads else "False") == "False", f"{path}, line {node.lineno}"
            assert not isinstance(node, ast.Attribute) or node.attr != "read_pickle", f"{path}, line {node.lineno}"


@pytest.mark.parametrize("name,read", [("a.npy", files.read_array), ("a.npz", files.read_arrays)])
def test_an_array_of_objects_is_refused(tmp_path, name, read):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "fired",)

    (np.save if name == "a.npy" else np.savez)(tmp_path / name, np.array([Bomb()], object))
    with pytest.raises(ValueError, match="it is not an intact"):
        read(tmp_path / name)
    assert not (tmp_path / "fired").exists()


def test_what_another_version_of_jax_lacks_comes_from_one_place():
    """`jax.enable_x64` is not there before JAX 0.8, and the one in `jax.experimental` not after it."""
    for path in [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "tests").rglob("*.py")]:
        if path.name not in ("jax_settings.py", Path(__file__).name):
            assert not re.search(
                r"\bjax\.(experimental\.)?enable_x64|experimental import enable_x64", path.read_text()
            ), path


def test_the_top_room_is_what_users_name():
    assert {path.stem for path in PACKAGE.glob("*.py")} == PUBLIC


def test_a_strategys_file_stays_readable():
    for path in (PACKAGE / "strategies").rglob("*.py"):
        assert len(path.read_text().splitlines()) < 400, path.name


@pytest.mark.parametrize(
    "code,absent",
    [
        ("import fedjax_sel; fedjax_sel.preset('quickstart')", ("jax", "numpy")),
        ("import fedjax_sel.data", ("jax", "tensorflow_datasets", "sklearn", "PIL", "matplotlib", "scipy", "rich")),
        ("import fedjax_sel.adapters.flower, fedjax_sel.adapters.rounds",
         ("flwr", "ray", "torch", "pfl", "matplotlib")),
        ("import fedjax_sel.runs.experiment", ("tensorflow_datasets", "sklearn", "PIL", "matplotlib")),
    ],
)  # fmt: skip
def test_what_is_light_stays_light(code, absent):
    check = f"\nimport sys\nassert not [name for name in {absent!r} if name in sys.modules]"
    subprocess.run([sys.executable, "-c", code + check], check=True, stdout=subprocess.DEVNULL)
