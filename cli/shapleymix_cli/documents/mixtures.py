"""An optimal mixture as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shapleymix_cli.documents.plain import by_name

if TYPE_CHECKING:
    from shapleymix.mixing.mixtures import Mixture, Rival


def mixture_document(found: Mixture, law: str) -> dict[str, Any]:
    """Exact ratios and losses by name, the certificate, the caps that bind and what they cost, and the baselines."""
    sources, targets, certificate = found.sources, found.targets, found.certificate
    return {
        "kind": "mixture",
        "law": law,
        "N": found.N,
        "D": found.D,
        "method": found.method,
        "engine": found.engine,
        "mixture": found.mixture,
        "mixture_low": by_name(sources, found.p_low),
        "mixture_high": by_name(sources, found.p_high),
        "objective": found.objective,
        "objective_low": found.objective_low,
        "objective_high": found.objective_high,
        "objective_kind": found.objective_kind,
        "penalty": found.penalty,
        "kl": found.kl,
        "anchor": None if found.anchor is None else by_name(sources, found.anchor),
        "weights": by_name(targets, found.weights),
        "weights_origin": found.weights_origin,
        "certificate": {
            "gap": certificate.gap,
            "relative_gap": certificate.relative_gap,
            "lower_bound": certificate.lower_bound,
        },
        "losses": by_name(targets, found.losses),
        "losses_low": by_name(targets, found.losses_low),
        "losses_high": by_name(targets, found.losses_high),
        "shadow_prices": found.shadow_prices,
        "binding": [vars(price) for price in found.binding],
        "caps": by_name(sources, found.caps),
        "floors": by_name(sources, found.floors),
        "available_tokens": by_name(sources, found.available),
        "epochs": by_name(sources, found.epochs),
        "baselines": [_rival(rival, sources) for rival in found.baselines],
        "excess_over_exact": found.excess,
        "distance_to_exact": found.distance,
        "level": found.level,
        "replicates": found.replicates,
        "warnings": list(found.notices),
        "provenance": found.provenance,
    }


def _rival(rival: Rival, sources: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": rival.name,
        "mixture": by_name(sources, rival.p),
        "objective": rival.objective,
        "penalty": rival.penalty,
        "reason": rival.reason,
        "objective_low": rival.objective_low,
        "objective_high": rival.objective_high,
        "gain": rival.gain,
        "gain_low": rival.gain_low,
        "gain_high": rival.gain_high,
        "probability": rival.probability,
        "within_bounds": rival.within_bounds,
    }
