"""Rival: a hand-written PyTorch loop, one client after another on all cores."""

# pyright: reportMissingImports=false
import torch
import torch_models
import work as work_
from torch.nn.functional import cross_entropy


def main() -> None:
    work = work_.read()
    torch.manual_seed(work.seed)
    torch.set_num_threads(work_.num_cores())
    network = torch_models.build(work)
    weights = list(network.parameters())
    clients = {number: torch_models.tensors(*data) for number, data in work.selected_clients().items()}
    server = [weight.detach().clone() for weight in weights]
    clock = work_.Clock(work)
    for round, cohort in enumerate(work.cohorts):
        total = [torch.zeros_like(weight) for weight in server]
        for number in cohort:
            with torch.no_grad():
                torch._foreach_copy_(weights, server)
            optimizer = torch.optim.SGD(weights, work.learning_rate, weight_decay=work.weight_decay, fused=True)
            images, labels = clients[number]
            for batch in torch.from_numpy(work.order(work.generator(round, number))):
                optimizer.zero_grad()
                cross_entropy(network(images[batch]), labels[batch]).backward()
                optimizer.step()
            with torch.no_grad():
                torch._foreach_add_(total, weights)
        server = [weight / len(cohort) for weight in total]
        clock()
    with torch.no_grad():
        torch._foreach_copy_(weights, server)
    work_.report(clock, *torch_models.test(network, work), packages=["torch"])


if __name__ == "__main__":
    main()
