"""Learning from another model's answers."""

import torch
from torch import Tensor
from torch.nn import functional as F


def kl_from(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of the two softmaxes, mean over the batch.

    The teacher is a constant: no gradient reaches it. Note torch's order of arguments, and that
    its default reduction would also divide by the number of classes. Logits may be bf16: of their
    logarithms, a sum of small differences would be left with two or three digits.
    """
    target = F.log_softmax(teacher.detach(), dim=1, dtype=torch.float32)
    answer = F.log_softmax(student, dim=1, dtype=torch.float32)
    return F.kl_div(answer, target, reduction="batchmean", log_target=True)
