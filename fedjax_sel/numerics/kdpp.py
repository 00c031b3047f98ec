"""k-DPP: sampling of K dissimilar items from N (Kulesza and Taskar, 2012).

A k-DPP with kernel L draws a set Y of exactly K items with probability det(L_Y) / e_K(lambda), where e_K is the K-th
elementary symmetric polynomial of L's eigenvalues. The sampler has two phases. Phase 1 draws a set J of K eigenvectors
with probability prod_{n in J} lambda_n / e_K(lambda). Phase 2 samples the projection DPP that they span.

Computations are in log space, because e_K of a hundred client profiles spans fifty orders of magnitude.

Shapes: N items, K drawn. Cost: O(K N) for the polynomials and phase 1, O(K^2 N) for phase 2. The decomposition takes
O(N^3), once.
"""

import chex
import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.numerics import decompositions

_HIGHEST = lax.Precision.HIGHEST  # a bfloat16 or TF32 Gram matrix is not positive semidefinite


def eigendecompose(similarity: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the eigenpairs of L = S^T S by decomposing the symmetric matrix S.

    Squaring the eigenvalues of S, instead of decomposing S^T S, halves the dynamic range of the logarithms. Eigenvalues
    that are zero up to rounding are returned as exactly zero, so that the rank of L can be counted.

    Args:
        similarity: symmetric S, [N, N]. Its dtype sets the precision: pass float64 if it is available.

    Returns:
        Eigenvalues of L, [N], ascending, and the eigenvectors as columns, [N, N].
    """
    similarity = jnp.asarray(similarity)
    chex.assert_shape(similarity, 2 * similarity.shape[:1])

    def by_lapack(similarity):
        values, vectors = decompositions.eigh(similarity)
        return _squared_spectrum(jnp.abs(values), vectors)

    return lax.platform_dependent(similarity, tpu=_by_rotations, default=by_lapack)


def eigendecompose_subset(similarity: jax.Array, available: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the eigenpairs of L restricted to the available items.

    With D = diag(available), the restricted L is (S D)^T (S D). Its eigenpairs follow from the singular value
    decomposition of S D, which keeps the precision of S instead of S^2.

    Args:
        similarity: symmetric S, [N, N]. Its dtype sets the precision.
        available: availability, bool [N].

    Returns:
        Eigenvalues, [N], ascending, and eigenvectors as columns, [N, N]. Unavailable items have the eigenvalue zero,
        zero rows, and zero columns.
    """
    chex.assert_shape(similarity, 2 * available.shape)
    return lax.platform_dependent(
        similarity, available, tpu=_subset_by_rotations, cuda=_subset_by_eigenvectors, default=_subset_by_lapack
    )


def _subset_by_lapack(similarity: jax.Array, available: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Decompose S D after adding a large diagonal entry for each unavailable item, so that null spaces do not mix.

    The entries are added to the triangular factor of S D, whose last rows are zero if the available items come first.
    """
    zero = jnp.zeros((), similarity.dtype)
    order = jnp.argsort(~available, stable=True)
    is_available = available[order]
    factor = decompositions.triangular_factor(jnp.where(is_available[None, :], similarity[:, order], zero))
    apart = jnp.sqrt(jnp.sum(factor**2)) * 2 + 1  # above every singular value of S D
    values, vectors_transposed = decompositions.right_singular_vectors(
        factor + jnp.diag(jnp.where(is_available, zero, apart))
    )
    inside = values * 2 < apart
    vectors = jnp.where(is_available[:, None] & inside[None, :], vectors_transposed.T, zero)
    back = jnp.argsort(order)
    return _squared_spectrum(jnp.where(inside, values, zero), vectors[back])


def _subset_by_eigenvectors(similarity: jax.Array, available: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Decompose S D by the eigenvectors of [[-a I, S D], [D S, -b (I - D)]].

    CUDA computes the eigenvectors of many replicates at once (jaxlib 0.11), and singular vectors one after another.
    Without the shifts a and b, each singular triple (s, u, v) of S D has the eigenvalues s and -s with the eigenvectors
    (u, v) and (u, -v). The shifts keep the directions of u and v. The small a moves the vectors u of a null space below
    zero, apart from its vectors v; the large b moves the unavailable items. The largest eigenvalues are then those of
    the available items, and the singular values are the lengths |S D v|.
    """
    n = similarity.shape[0]
    zero, one, two, three = (jnp.asarray(number, similarity.dtype) for number in (0, 1, 2, 3))
    identity = jnp.eye(n, dtype=similarity.dtype)
    matrix = jnp.where(available[None, :], similarity, zero)
    scale = jnp.sqrt(jnp.sum(matrix**2))  # at least the largest singular value
    resolution = jnp.asarray(50 * n * jnp.finfo(similarity.dtype).eps, similarity.dtype)
    small, large = resolution * jnp.where(scale > 0, scale, one), two * scale + one
    above = jnp.concatenate([-small * identity, matrix], axis=1)
    below = jnp.concatenate([matrix.T, -large * jnp.diag((~available).astype(similarity.dtype))], axis=1)
    _, vectors = jnp.linalg.eigh(jnp.concatenate([above, below]))
    inside = jnp.arange(n) < jnp.sum(available)
    vectors = jnp.where(available[:, None] & inside[None, :], vectors[n:, ::-1][:, :n], zero)
    vectors = vectors / jnp.where(inside, jnp.sqrt(jnp.sum(vectors**2, axis=0)), one)
    for _ in range(2):  # Newton's steps make vectors of near-zero singular values orthogonal
        gram = lax.dot(vectors.T, vectors, precision=_HIGHEST)
        vectors = lax.dot(vectors, three * identity - gram, precision=_HIGHEST) / two
    lengths = jnp.sqrt(jnp.sum(lax.dot(matrix, vectors, precision=_HIGHEST) ** 2, axis=0))
    return _squared_spectrum(lengths, vectors)


def _subset_by_rotations(similarity: jax.Array, available: jax.Array) -> tuple[jax.Array, jax.Array]:
    zero = jnp.zeros((), similarity.dtype)
    eigenvalues, eigenvectors = _by_rotations(jnp.where(available[None, :], similarity, zero))
    return eigenvalues, jnp.where(available[:, None], eigenvectors, zero)


def _by_rotations(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the eigenpairs of A^T A from A by Jacobi rotations, for TPUs, which have no float64 decompositions."""
    values, rows = decompositions.right_singular_vectors_by_rotations(matrix)
    return values**2, rows.T


def _squared_spectrum(magnitudes: jax.Array, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
    threshold = magnitudes.max() * magnitudes.shape[0] * jnp.finfo(magnitudes.dtype).eps
    eigenvalues = jnp.where(magnitudes > threshold, magnitudes, jnp.zeros_like(magnitudes)) ** 2
    order = jnp.argsort(eigenvalues)
    return eigenvalues[order], vectors[:, order]


def _log_terms(eigenvalues: jax.Array, k: int) -> jax.Array:
    """Return log(lambda_n e_{j-1}(lambda_1 .. lambda_{n-1})) for j = 1..k (rows) and n = 1..N (columns), [k, N].

    Row j is, up to normalization, the distribution of the last eigenvector when j are drawn. Its cumulative sum over n
    is e_j(lambda_1 .. lambda_n).
    """
    log_values = jnp.log(jnp.maximum(eigenvalues, 0.0))

    def next_row(log_previous, _):
        terms = log_values + log_previous
        log_sums = lax.cumlogsumexp(terms)
        return jnp.concatenate([jnp.array([-jnp.inf], terms.dtype), log_sums[:-1]]), terms

    log_e0 = jnp.zeros_like(log_values)  # e_0 of any set is 1
    _, terms = lax.scan(next_row, log_e0, length=k)
    return terms


def log_elementary_symmetric_polynomials(eigenvalues: jax.Array, k: int) -> jax.Array:
    """Return log e_0 .. log e_k, [k + 1], of nonnegative eigenvalues, [N]; -inf where a polynomial is zero."""
    eigenvalues = jnp.asarray(eigenvalues)
    sums = jax.nn.logsumexp(_log_terms(eigenvalues, k), axis=1)
    return jnp.concatenate([jnp.zeros((1,), eigenvalues.dtype), sums])


def sample(key: jax.Array, eigenvalues: jax.Array, eigenvectors: jax.Array, k: int) -> jax.Array:
    """Draw k distinct items, int32 [k] in the order of the draws: the set Y with probability det(L_Y) / e_k.

    Args:
        key: random key, consumed.
        eigenvalues: eigenvalues of L, [N], at least k of them positive.
        eigenvectors: eigenvectors of L as columns, [N, N].
        k: number of items.
    """
    eigenvalues, eigenvectors = jnp.asarray(eigenvalues), jnp.asarray(eigenvectors)
    chex.assert_shape(eigenvectors, 2 * eigenvalues.shape)
    key_vectors, key_items = jax.random.split(key)
    chosen = _sample_eigenvectors(key_vectors, eigenvalues, k)
    return _sample_projection(key_items, eigenvectors[:, chosen])


def _sample_eigenvectors(key: jax.Array, eigenvalues: jax.Array, k: int) -> jax.Array:
    """Draw a set J of k eigenvector indices, largest first, with probability prod_J lambda / e_k (phase 1).

    The textbook algorithm visits n = N .. 1 and accepts n with probability lambda_n e_{j-1} / e_j. Drawing the next
    accepted index directly has the same distribution, in k steps instead of N.
    """
    terms = _log_terms(eigenvalues, k)
    position = jnp.arange(eigenvalues.shape[0])

    def pick(last, inputs):
        row, key = inputs
        index = jax.random.categorical(key, jnp.where(position < last, row, -jnp.inf)).astype(jnp.int32)
        return index, index

    _, chosen = lax.scan(pick, jnp.int32(eigenvalues.shape[0]), (terms[::-1], jax.random.split(key, k)))
    return chosen


def _sample_projection(key: jax.Array, basis: jax.Array) -> jax.Array:
    """Draw from the projection DPP of the orthonormal columns of basis [N, K] by Gram-Schmidt (phase 2)."""
    num_items, k = basis.shape
    residual = jnp.sum(basis**2, axis=1)

    def pick(carry, inputs):
        residual, factors, taken = carry
        step, key = inputs
        logits = jnp.where(taken, -jnp.inf, jnp.log(jnp.maximum(residual, jnp.finfo(basis.dtype).tiny)))
        item = jax.random.categorical(key, logits).astype(jnp.int32)
        column = jnp.matmul(basis, basis[item], precision=_HIGHEST)
        column = column - jnp.matmul(factors, factors[item], precision=_HIGHEST)
        column = column * lax.rsqrt(jnp.maximum(residual[item], jnp.finfo(basis.dtype).tiny))
        factors = factors.at[:, step].set(column)  # later columns are still zero
        return (jnp.maximum(residual - column**2, 0.0), factors, taken.at[item].set(True)), item

    start = (residual, jnp.zeros((num_items, k), basis.dtype), jnp.zeros((num_items,), bool))
    _, items = lax.scan(pick, start, (jnp.arange(k), jax.random.split(key, k)))
    return items


def inclusion_probabilities(eigenvalues: jax.Array, eigenvectors: jax.Array, k: int) -> jax.Array:
    """Return P(i in Y) = sum_n V_in^2 lambda_n e_{k-1}(lambda without n) / e_k(lambda), [N], with sum k.

    Args:
        eigenvalues: eigenvalues of L, [N], at least k of them positive.
        eigenvectors: eigenvectors of L as columns, [N, N].
        k: number of items drawn.
    """
    eigenvalues, eigenvectors = jnp.asarray(eigenvalues), jnp.asarray(eigenvectors)
    chex.assert_shape(eigenvectors, 2 * eigenvalues.shape)
    before = _log_prefix_polynomials(eigenvalues, k - 1)  # e_j of the eigenvalues before n
    after = _log_prefix_polynomials(eigenvalues[::-1], k - 1)[:, ::-1]  # e_j of the eigenvalues after n
    log_without = jax.nn.logsumexp(before + after[::-1], axis=0)  # e_{k-1} without n, by Vandermonde's convolution
    log_all = log_elementary_symmetric_polynomials(eigenvalues, k)[k]
    picked = jnp.exp(jnp.log(jnp.maximum(eigenvalues, 0.0)) + log_without - log_all)
    return jnp.matmul(eigenvectors**2, picked, precision=_HIGHEST)


def _log_prefix_polynomials(eigenvalues: jax.Array, k: int) -> jax.Array:
    """Return log e_j(lambda_1 .. lambda_{n-1}) for j = 0..k (rows) and n = 1..N (columns), [k + 1, N]."""
    log_values = jnp.log(jnp.maximum(eigenvalues, 0.0))
    terms = _log_terms(eigenvalues, k + 1)  # row j - 1 is log lambda_n + log e_{j-1}(.. n-1)
    shifted = terms - log_values
    # If lambda_n = 0, the subtraction is -inf - -inf; e_j(.. n-1) then equals e_j(.. n), the cumulative sum.
    sums = jnp.concatenate([jnp.zeros((1, terms.shape[1]), terms.dtype), lax.cumlogsumexp(terms, axis=1)[:-1]])
    return jnp.where(eigenvalues > 0, shifted, sums)
