"""Sends a matrix as its leading singular vectors, if that is smaller."""

import torch
from torch import Tensor

from pfedes.core.payload import Max, TensorSpec
from pfedes.core.wire import Option

DENSE, FACTORS = "", "/factors"


def as_matrix(tensor: Tensor) -> Tensor:
    """A kernel as outputs x (inputs * height * width)."""
    return tensor.flatten(1)


def compress(tensors: dict[str, Tensor], energy: float) -> dict[str, Tensor]:
    """Each matrix as few factors as hold a share `energy` of its squared singular values.

    Factors travel as one tensor with a row (u, v, sigma) for each singular value. A vector, a
    matrix that is smaller dense, and whatever is not finite travel as they are.
    """
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        factors = _factors(as_matrix(tensor), energy) if tensor.dim() > 1 else None
        if factors is not None and factors.numel() < tensor.numel():
            packed[name + FACTORS] = factors
        else:
            packed[name + DENSE] = tensor
    return packed


def expand(packed: dict[str, Tensor], shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """Restores the tensors; equal factors give bit-identical tensors."""
    result = {}
    for name, shape in shapes.items():
        if (factors := packed.get(name + FACTORS)) is None:
            result[name] = packed[name + DENSE]
            continue
        u, v, sigma = factors.split([shape[0], factors.shape[1] - shape[0] - 1, 1], dim=1)
        result[name] = ((u * sigma).T @ v).reshape(shape)
    return result


def options(name: str, tensor: Tensor) -> tuple[Option, ...]:
    """The forms in which a tensor may travel."""
    dense = {name + DENSE: TensorSpec.of(tensor)}
    if tensor.dim() < 2:
        return (dense,)
    rows, columns = as_matrix(tensor).shape
    factors = TensorSpec((Max(min(rows, columns)), rows + columns + 1))
    return dense, {name + FACTORS: factors}


def flops(tensors: dict[str, Tensor]) -> int:
    """FLOPs of the decompositions: 6 m n^2 + 20 n^3 for the larger side m and the smaller n."""
    total = 0
    for tensor in tensors.values():
        if tensor.dim() > 1:
            n, m = sorted(as_matrix(tensor).shape)
            total += 6 * m * n**2 + 20 * n**3
    return total


def _factors(matrix: Tensor, energy: float) -> Tensor | None:
    if not bool(torch.isfinite(matrix).all()):
        return None  # a decomposition would not converge; the receiver will refuse it anyway
    u, sigma, v = torch.linalg.svd(matrix, full_matrices=False)
    squared = sigma.double().square().cumsum(0)
    rank = len(sigma)
    if squared[-1] == 0:
        rank = 0
    elif energy < 1:
        # The first rank that holds enough: all of them where all are needed, never none.
        rank = int((squared < energy * squared[-1]).sum()) + 1
    return torch.cat([u.T[:rank], v[:rank], sigma[:rank, None]], dim=1).contiguous()
