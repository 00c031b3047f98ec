"""A workflow of NVIDIA FLARE whose cohorts a Selector chooses (FLARE 2.9).

Each query is a task named after the kind of fact. A site reads the name with `flare.get_task_name()` and answers with
an FLModel whose params hold `answer`. The task `train` returns the trained params, and the wanted facts in its meta.
"""

# pyright: reportMissingImports=false, reportArgumentType=false
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.workflows.model_controller import ModelController

import fedjax_sel
from fedjax_sel.adapters import rounds
from fedjax_sel.adapters.rounds import ReceivedReport


class SelectingController(ModelController):
    def __init__(self, strategy, sizes, num_selected, num_rounds, seconds=600, **given):  # sizes: site -> examples
        super().__init__(ignore_result_error=True)  # failed sites are left out
        self.selector = fedjax_sel.Selector(
            strategy, len(sizes), num_selected, num_rounds, sizes=sizes, clients=sorted(sizes), **given
        )
        self.sizes, self.seconds, self.cohorts = sizes, seconds, []

    def send(self, task, sites, model, meta):
        if not sites:
            return {}  # FLARE reads an empty list as all sites
        sent = FLModel(ParamsType.FULL, model.params, current_round=self.selector.round, meta=meta)
        replies = self.send_model_and_wait(task, sent, targets=list(sites), timeout=self.seconds)
        return {reply.meta["client_name"]: reply for reply in replies}

    def run(self):
        model = self.load_model()
        while self.selector.round < self.selector.num_rounds:

            def ask(due, sites):
                replies = self.send(due.kind, sites, model, {"options": dict(due.options)})
                return {site: reply.params["answer"] for site, reply in replies.items()}

            cohort, weights = rounds.choose(self.selector, self.sample_clients(), ask)
            self.cohorts.append(cohort)
            replies = self.send("train", cohort, model, {"wanted": [due.kind for due in self.selector.asks()]})
            reports = {
                site: ReceivedReport(
                    {name: reply.params[name] - model.params[name] for name in model.params},
                    reply.meta.get("facts", {}),
                )
                for site, reply in replies.items()
            }
            heard = [site for site in reports if reports[site].finite]
            total = sum(self.sizes[site] for site in heard)
            shares = {site: self.sizes[site] / total for site in heard}
            if weights is not None:  # the strategy's own weights, which need not sum to one
                shares = {site: float(weight) for site, weight in zip(cohort, weights) if site in heard}
            step = {
                name: sum((reports[site].update[name] * share for site, share in shares.items()), 0 * array)
                for name, array in model.params.items()
            }
            model.params = {name: array + step[name] for name, array in model.params.items()}
            rounds.close(self.selector, reports, step)
            self.save_model(model)
