"""The choice of a token's experts, their weights, and the loss for an uneven load: pure functions.

Scores are computed in fp32 whatever the model's dtype, as in Megatron (transformer/moe/moe_utils.py
has the same functions), because different experts could have equal bf16 logits. Equal scores are
ordered by `torch.topk`. Any order is right if every caller gets the same one.

Dimensions: T tokens of this rank, E experts (or experts of each sequence), K chosen ones, G groups
of experts, C rows of a capacity.
"""

import math

import torch
from torch import Tensor

from shardlab.experts.expert_config import ExpertConfig


def choose(
    logits_TE: Tensor, config: ExpertConfig, bias_E: Tensor | None = None, *, training: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the weight of each expert for each token (0 if not chosen), and which are chosen.

    Args:
        logits_TE: the router's logits.
        config: top_k, scores, pre_softmax, groups, scaling, sinkhorn.
        bias_E: a bias that is added to the scores for the choice only.
        training: whether to use Sinkhorn's balanced assignment, if so configured.
    """
    by_sigmoid = config.scores == "sigmoid" or (config.sinkhorn and config.top_k == 1)
    over_chosen = not (by_sigmoid or config.pre_softmax or config.sinkhorn)
    if by_sigmoid:  # in fp32, but for Sinkhorn: as Megatron's
        scores_TE = torch.sigmoid(logits_TE if config.sinkhorn else logits_TE.float())
        scores_TE = scores_TE.type_as(logits_TE)
    else:
        scores_TE = logits_TE if over_chosen else _softmax(logits_TE)
    ranking_TE = scores_TE if bias_E is None else scores_TE + bias_E
    index_TK = select_top(
        sinkhorn(logits_TE.float()) if config.sinkhorn and training else ranking_TE, config
    )
    chosen_TK = scores_TE.gather(1, index_TK)
    if over_chosen:
        chosen_TK = _softmax(chosen_TK)
    elif by_sigmoid and config.top_k > 1:
        chosen_TK = _normalize(chosen_TK)
    if config.scaling:
        chosen_TK = chosen_TK * config.scaling
    probs_TE = torch.zeros_like(logits_TE).scatter(1, index_TK, chosen_TK)
    return probs_TE, mask_of(logits_TE, index_TK)


def select_top(scores_TE: Tensor, config: ExpertConfig) -> Tensor:
    """Return the best K experts of each token, among the best groups if so configured.

    A group's score is the sum of its best K / top_groups experts' scores.
    """
    if config.groups is not None and config.top_groups is not None:
        scores_TGe = scores_TE.view(-1, config.groups, config.count // config.groups)
        best_TG = scores_TGe.topk(config.top_k // config.top_groups, dim=-1).values.sum(-1)
        kept_TG = mask_of(best_TG, best_TG.topk(config.top_groups, dim=-1, sorted=False).indices)
        scores_TE = scores_TGe.masked_fill(~kept_TG.unsqueeze(-1), -math.inf).flatten(1)
    return scores_TE.topk(config.top_k, dim=1).indices


@torch.no_grad()
def sinkhorn(logits_TE: Tensor, tolerance: float = 1e-4) -> Tensor:
    """Scale rows and columns of exp(logits) in turn until columns hardly change."""
    cost_TE = logits_TE.exp()
    column_E, moved = cost_TE.new_ones(cost_TE.shape[1]), math.inf
    while moved > tolerance:
        row_T = (1 / max(1, cost_TE.shape[0])) * 1 / ((column_E * cost_TE).sum(1) + 1e-8)
        before_E = column_E
        column_E = (1 / cost_TE.shape[1]) * 1 / ((row_T.unsqueeze(1) * cost_TE).sum(0) + 1e-8)
        moved = float((before_E - column_E).abs().mean())
    return column_E * cost_TE * row_T.unsqueeze(1)


def drop(probs_TE: Tensor, chosen_TE: Tensor, config: ExpertConfig) -> tuple[Tensor, Tensor]:
    """Drop the rows above each expert's capacity, if any; with `pad`, fill it with weight-0 rows.

    Megatron's "position" is a top-k over zeros and ones, which keeps arbitrary rows among equal
    ones; ours keeps the first.
    """
    if config.capacity is None:
        return probs_TE, chosen_TE
    tokens, ranking_TE = len(probs_TE), probs_TE
    capacity = min(tokens, math.ceil(tokens * config.top_k / config.count * config.capacity))
    if config.drop == "position":
        ranking_TE = chosen_TE * tokens - torch.arange(tokens, device=probs_TE.device).unsqueeze(1)
    kept_CE = ranking_TE.topk(capacity, dim=0, sorted=False).indices
    kept_TE = torch.zeros_like(chosen_TE).scatter(0, kept_CE, True) & (chosen_TE | config.pad)
    return probs_TE * kept_TE, kept_TE


def balance_scores(logits_TE: Tensor, config: ExpertConfig) -> tuple[Tensor, Tensor]:
    """Return a token's score for each expert, and its top K experts, without bias or groups."""
    if config.scores == "softmax":
        scores_TE = torch.softmax(logits_TE, -1, dtype=torch.float32)
    else:
        scores_TE = _normalize(torch.sigmoid(logits_TE))
    return scores_TE, mask_of(logits_TE, scores_TE.topk(config.top_k, dim=1).indices)


def load_loss(scores_TE: Tensor, load_E: Tensor, config: ExpertConfig) -> Tensor:
    """Return this rank's part of E Σ fᵢ Pᵢ, which is 1 for an even load and at most E / K.

    fᵢ is the share of choices of expert i, Pᵢ its mean score (Fedus et al., "Switch Transformers",
    section 2.2; Megatron's `switch_load_balancing_loss_func`). The gradient flows through P, as
    choices have no gradient.

    Args:
        scores_TE: the scores of this rank's tokens.
        load_E: the number of choices of each expert, over all tokens of the loss; longer than E if
            each sequence has a loss of its own.
        config: count, top_k.
    """
    count, k = config.count, config.top_k
    load_BE = load_E.view(-1, count)
    tokens_B = (load_BE.sum(1, dtype=torch.float64) / k).clamp(min=1)
    factor_B = count / (k * tokens_B * tokens_B)
    products_B = (scores_TE.sum(0).view_as(load_BE) * load_BE).sum(1)
    return (products_B * factor_B.to(scores_TE.dtype)).sum()


def z_loss(logits_TE: Tensor) -> Tensor:
    """Return the mean square of log Σ exp(logits) (Zoph et al., "ST-MoE", equation 5)."""
    return logits_TE.logsumexp(-1).square().sum() / max(1, len(logits_TE))


def mask_of(like: Tensor, index: Tensor) -> Tensor:
    """Return booleans of the shape of `like`, true at `index` along dim 1."""
    return torch.zeros_like(like, dtype=torch.bool).scatter(1, index, True)


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, -1, dtype=torch.float32).type_as(logits)


def _normalize(scores: Tensor) -> Tensor:
    return scores / (scores.sum(-1, keepdim=True) + 1e-20)
