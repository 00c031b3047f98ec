"""What examples/nvflare_controller.py uses of NVIDIA FLARE, as its documentation describes it, and no more.

It stands in for the package so that the controller can run in this process. It is not FLARE: nothing is sent.
"""

import dataclasses
import enum
import inspect
import sys
import types
from typing import Any


class ParamsType(enum.Enum):
    FULL = "FULL"


@dataclasses.dataclass
class FLModel:
    params_type: ParamsType | None = None
    params: dict[str, Any] | None = None
    current_round: int | None = None
    meta: dict[str, Any] | None = None


class ModelController:
    def __init__(self, *, persistor_id="persistor", ignore_result_error=None):
        pass

    def send_model_and_wait(self, task_name="train", data=None, targets=None, min_responses=None, timeout=0):
        raise NotImplementedError


class InProcess:
    """What of a controller reaches out: to `sites`, functions (task, FLModel) -> FLModel, None where one is silent."""

    sites: dict[str, Any]
    first: Any

    def load_model(self):
        self.saved = []
        return self.first

    def save_model(self, model):
        self.saved.append(model)

    def sample_clients(self, num_clients=None):
        return list(self.sites)[:num_clients]

    def send_model_and_wait(self, *positional, **named):
        taken = inspect.signature(super().send_model_and_wait).bind(*positional, **named).arguments
        task_name, data, targets = taken["task_name"], taken["data"], taken["targets"]
        replies = []
        for name in targets or self.sites:  # as FLARE does
            reply = self.sites[name](task_name, data)
            if reply is not None:
                reply.meta = {**(reply.meta or {}), "client_name": name}
                replies.append(reply)
        return replies


def put_in_place(monkeypatch):
    """Have `import nvflare` find this."""
    names = ("nvflare", "nvflare.app_common", "nvflare.app_common.abstract", "nvflare.app_common.workflows")
    modules = {name: types.ModuleType(name) for name in names}
    model = types.ModuleType("nvflare.app_common.abstract.fl_model")
    model.FLModel, model.ParamsType = FLModel, ParamsType
    controller = types.ModuleType("nvflare.app_common.workflows.model_controller")
    controller.ModelController = ModelController
    for module in (*modules.values(), model, controller):
        monkeypatch.setitem(sys.modules, module.__name__, module)
