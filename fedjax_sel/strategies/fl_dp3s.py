"""FL-DP3S: cohorts drawn from a k-DPP over data profiles (Zhang, Xu, Yang, Wang, Quek, 2023).

Before the first round every client sends a profile f_c of its data; similar profiles indicate similar data. Each round
draws its cohort from the k-DPP whose kernel is built from the profiles. Clients with similar data then seldom train
together, and the cohort's label distribution is close to the population's.

    symbol   here                        shape    meaning
    f_c      now.info.profile.value[c]   [Q]      mean output of the first fully-connected layer over c's data, at w^0
                                                                                                           (Eq. 11)
    s0_mn    distances                   [N, N]   ||f_m - f_n||_2                                          (Eq. 14)
    S        similarity                  [N, N]   1 - (s0 - min s0) / (max s0 - min s0)                    (Eq. 14)
    L        eigenvalues, eigenvectors   [N], [N, N]   S^T S, P(Y) = det(L_Y) / e_K(lambda)                (Eq. 13)

Information bought: one profile of every client at the start (N models down, N Q floats up; Q = P for the gradient
profiles of the paper's Fig. 3). After that, a round costs the same as random selection.

Differs from the paper:
* The profile is taken before the activation, as Theorem 1 assumes (profile="fc1-relu": after it).
* S is decomposed instead of L = S^T S, once, in float64. Eigenvalues below N^2 eps^2 times the largest count as zero,
  with eps = 2.2e-16. Near-duplicate clients have far larger eigenvalues.
* If all profiles are equal, the paper's S is 0/0; cohorts are then uniform.
* If the rank of L is below K, L + delta I with delta = 1e-6 tr(L) / N replaces L.
* With unavailable clients, the round uses the k-DPP of the available clients' submatrix, decomposed in float64.
* The gradient profiles are measured once, at w^0, like the others; the paper does not specify this.
* pool=M is for many clients. Without a pool, S takes N^2 floats, and its decomposition N^3 operations, once. With a
  pool, each round draws M clients uniformly, and the cohort from their k-DPP: M^2 floats and M^3 operations per round.
  The profiles are rotated once into min(N, Q) coordinates, so that distances of gradients cost no more.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.core.plugins import Count
from fedjax_sel.numerics import decompositions, kdpp, sampling
from fedjax_sel.strategies.contract import Now, Selection, Strategy, check_count
from fedjax_sel.strategies.facts import ALL, NEVER, Request, at_start

_REQUESTS = {
    "fc1": Request("profile", ALL, at_start()),
    "fc1-relu": Request("profile", ALL, at_start(), (("relu", True),)),
    "gradient": Request("gradient", ALL, at_start()),
    "representative-gradient": Request("update", ALL, at_start()),
}


class State(NamedTuple):
    """The kernel; constant."""

    similarity: jax.Array  # S, rounded to float32, [N, N]
    similarity_rest: jax.Array  # rounding error of `similarity`, float32 [N, N]
    eigenvalues: jax.Array  # eigenvalues of L = S^T S, ascending, float32 [N]
    eigenvectors: jax.Array  # eigenvectors of L, as columns, float32 [N, N]


class Profiles(NamedTuple):
    """The profiles in at most N coordinates, with a pool; constant. A rotation keeps their distances."""

    rounded: jax.Array  # rounded to float32, [N, min(N, Q)]
    rest: jax.Array  # rounding error of `rounded`, float32 [N, min(N, Q)]


def fl_dp3s(
    *, profile: Literal["fc1", "fc1-relu", "gradient", "representative-gradient"] = "fc1", pool: Count | None = None
) -> Strategy:
    """Make FL-DP3S.

    Args:
        profile: data profile: `fc1` (the paper's) or `fc1-relu`; or the paper's baselines `gradient` (full-batch
            gradient) and `representative-gradient` (result of one local training).
        pool: number of clients M drawn uniformly in each round, as the ground set of the k-DPP. None: all clients, as
            in the paper; consider a pool if the N x N kernel does not fit in memory, or if a thousand
            clients are not always available.
    """
    request = _REQUESTS[profile]
    size = pool or 0

    def init(key: jax.Array, now: Now) -> State:
        fact = getattr(now.info, request.kind)
        similarity = similarity_of_profiles(known_or_mean(fact.value.astype(jnp.float64), fact.age))
        eigenvalues, eigenvectors = kdpp.eigendecompose(similarity)
        return State(*decompositions.split(similarity), eigenvalues, eigenvectors)

    def select(key, state: State, now: Now) -> Selection:
        k, available = now.env.num_selected, now.available
        if available is None:
            spectrum = _of_sufficient_rank(state.eigenvalues, state.eigenvectors, k)
            return Selection.of(kdpp.sample(key, *spectrum, k), None)
        eigenvalues, eigenvectors = lax.cond(  # under `vmap` over replicates both branches are computed
            available.all(), lambda: (state.eigenvalues, state.eigenvectors), lambda: _of_available(state, available)
        )
        spectrum = _of_sufficient_rank(eigenvalues, eigenvectors, k)
        return Selection.of(_sample_available(key, spectrum, k, available), available)

    def inclusion(state: State, now: Now) -> jax.Array:
        k, available = now.env.num_selected, now.available
        if available is None:
            return kdpp.inclusion_probabilities(*_of_sufficient_rank(state.eigenvalues, state.eigenvectors, k), k)
        spectrum = _of_sufficient_rank(*_of_available(state, available), k)
        return jnp.where(available.sum() >= k, kdpp.inclusion_probabilities(*spectrum, k), 1.0)

    def init_of_pool(key: jax.Array, now: Now) -> Profiles:
        fact = getattr(now.info, request.kind)
        profiles = known_or_mean(fact.value.astype(jnp.float64), fact.age)
        profiles = profiles - profiles[:1]  # equal profiles become zero, and stay equal
        return Profiles(*decompositions.split(decompositions.triangular_factor(profiles.T).T))

    def select_from_pool(key, state: Profiles, now: Now) -> Selection:
        n, k, available = now.env.num_clients, now.env.num_selected, now.available
        check_count("fl_dp3s: pool", size, now.env, least=k)
        key_pool, key_cohort = jax.random.split(key)
        drawn = sampling.uniform_without_replacement(key_pool, n, size, available)
        drawn_available = None if available is None else available[drawn]
        with enable_x64(True):
            similarity = similarity_of_profiles(decompositions.joined(state.rounded[drawn], state.rest[drawn]))
            spectrum = _spectrum(similarity, drawn_available)
        spectrum = _of_sufficient_rank(*spectrum, k)
        if drawn_available is None:
            return Selection.of(drawn[kdpp.sample(key_cohort, *spectrum, k)], None)
        return Selection.of(drawn[_sample_available(key_cohort, spectrum, k, drawn_available)], available)

    if pool is not None:
        return Strategy("fl_dp3s", select_from_pool, (request,), init=init_of_pool)
    return Strategy("fl_dp3s", select, (request,), init=init, inclusion=inclusion)


def _of_available(state: State, available: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the eigenpairs of L restricted to the available clients, float32 [N] and [N, N]."""
    with enable_x64(True):
        return _spectrum(decompositions.joined(state.similarity, state.similarity_rest), available)


def _spectrum(similarity: jax.Array, available: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Return the eigenpairs of L, or of its submatrix for the available clients, in float32.

    Rounding is the last step and relative to each eigenvalue, so a set's probability changes by a factor of at most
    1 + 1.2e-7 K.
    """
    if available is None:
        eigenvalues, eigenvectors = kdpp.eigendecompose(similarity)
    else:
        eigenvalues, eigenvectors = kdpp.eigendecompose_subset(similarity, available)
    return eigenvalues.astype(jnp.float32), eigenvectors.astype(jnp.float32)


def _sample_available(key, spectrum: tuple[jax.Array, jax.Array], k: int, available: jax.Array) -> jax.Array:
    """Draw from the k-DPP of the available clients; if they are fewer than k, return all of them and fill up."""
    diverse = kdpp.sample(key, *spectrum, k)
    everyone = sampling.uniform_without_replacement(key, available.shape[0], k, available)
    return jnp.where(available.sum() >= k, diverse, everyone)


def known_or_mean(profiles: jax.Array, age: jax.Array) -> jax.Array:
    """Impute missing profiles, [N, Q], with the mean of the known profiles.

    Profiles are missing for clients that never answered, which only happens with real clients. A profile that is not
    finite counts as missing, for example if local training diverges for `representative-gradient`.
    """
    known = ((age < NEVER) & jnp.isfinite(profiles).all(axis=1))[:, None]
    mean = jnp.where(known, profiles, 0).sum(axis=0) / jnp.maximum(known.sum(), 1)
    return jnp.where(known, profiles, mean)


def similarity_of_profiles(profiles: jax.Array) -> jax.Array:
    """Return S [N, N] for profiles [N, Q] (Zhang et al., Eq. 14); the identity if all profiles are equal.

    Distances are explicit differences: ||a||^2 + ||b||^2 - 2ab would cancel the small distances within a class.
    """
    distances = lax.map(lambda profile: jnp.sqrt(jnp.sum((profiles - profile) ** 2, axis=1)), profiles)
    largest = distances.max()  # the smallest distance is 0, on the diagonal
    similarity = 1.0 - distances / jnp.where(largest > 0, largest, jnp.ones_like(largest))
    return jnp.where(largest > 0, similarity, jnp.eye(profiles.shape[0], dtype=profiles.dtype))


def _of_sufficient_rank(eigenvalues: jax.Array, eigenvectors: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Return the eigenpairs of L, or of L + delta I if its rank is below k; unavailable clients have zero rows."""
    present = jnp.sum(eigenvectors**2, axis=0)  # 1, or 0 for the columns that unavailable clients leave empty
    delta = 1e-6 * eigenvalues.sum() / jnp.maximum(present.sum(), 1.0)
    return jnp.where((eigenvalues > 0).sum() < k, eigenvalues + delta * present, eigenvalues), eigenvectors
