"""Flower without its engine: a grid that calls the clients' app in this process, and clients of a line."""

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedjax_sel.adapters.flower import client_app
from fedjax_sel.adapters.rounds import TrainingReport

N = 8


class Line:
    """A client that sees a part of the line y = 3x - 1; the model is its slope and its intercept."""

    def __init__(self, number):
        rng = np.random.default_rng(number)
        x = rng.normal(loc=number / 4, size=20 + number)
        self.name = f"{number}"
        self.inputs, self.targets = np.stack([x, np.ones_like(x)], axis=1), 3 * x - 1 + 0.1 * rng.normal(size=x.size)
        self.asked = []

    @property
    def num_examples(self):
        return len(self.targets)

    num_all_examples = num_examples

    def answer(self, question):
        self.asked.append((question.kind, question.round, dict(question.options), dict(question.config)))
        if question.kind == "label_histogram":
            assert question.weights is None
            return np.bincount([self.num_examples % 3], minlength=3)
        return self.fact(question.kind, question.weights["line"])

    def fact(self, kind, line):
        residuals = self.inputs @ line - self.targets
        return {
            "loss": lambda: np.mean(residuals**2),
            "gradient": lambda: 2 * self.inputs.T @ residuals / len(residuals),
            "training_loss": lambda: 1.0,
            "seconds": lambda: 0.0,
            "update_norm": lambda: np.linalg.norm(self.trained(line) - line),
            "update": lambda: self.trained(line) - line,
            "profile": lambda: self.inputs.mean(axis=0),
        }[kind]()

    def trained(self, line):
        for _ in range(20):
            line = line - 0.02 * self.inputs.T @ (self.inputs @ line - self.targets) / len(self.targets)
        return line

    def train(self, order):
        self.asked.append(("train", order.round, order.probe, dict(order.config)))
        line = self.trained(order.weights["line"])
        facts = {kind: self.fact(kind, order.weights["line"]) for kind in order.wanted}
        losses = {name: self.loss(order.weights if "before" in name else {"line": line}) for name in order.losses}
        return TrainingReport({"line": line}, self.num_examples, facts, losses)

    def loss(self, weights, options=None):
        return np.mean((self.inputs @ weights["line"] - self.targets) ** 2)


class FakeGrid(Grid):
    """Nodes of this process. `hears(node, message)` says what becomes of a message: True, False (lost) or "error"."""

    def __init__(self, clients, first_node=100):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes = {first_node + place: client for place, client in enumerate(clients)}
        self.app = client_app(lambda context: self.nodes[context.node_id])
        self.hears = lambda node, message: True
        self.sent, self.timeouts = [], []

    def set_run(self, run):
        pass

    @property
    def run(self):
        return None

    def create_message(self, *_, **__):
        raise NotImplementedError

    def push_messages(self, messages):
        raise NotImplementedError

    pull_messages = push_messages

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for place, message in enumerate(messages):
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"message {place}"
            self.sent.append((message.metadata.message_type, self.nodes[node].name))
            self.timeouts.append(timeout)
            hears = self.hears(node, message)
            if hears == "error":
                replies.append(Message(Error(1, "it broke"), reply_to=message))
            elif hears:
                context = Context(1, node, {}, RecordDict(), {})
                replies.append(self.app(message, context))
        return reversed(replies)
