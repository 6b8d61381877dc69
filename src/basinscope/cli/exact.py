"""`basinscope exact`: learning coefficients in closed form, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from .. import exact
from ..errors import InputError
from .options import Json

app = typer.Typer(no_args_is_help=True, help="Learning coefficients known in closed form.")
finite = typer.Typer(no_args_is_help=True, help="Exact values λ_t at finite nβ: what a perfect sampler would find.")
app.add_typer(finite, name="finite")

Rank = Annotated[int, typer.Option("--rank", help="Rank of the true linear map.")]
Prior = Annotated[str | None, typer.Option("--prior", metavar="H,H", help="Exponents h of a prior Π|w|^h.")]
Powers = Annotated[list[int], typer.Argument(metavar="K", help="Exponents k of K = Π w^(2k).")]
Nbeta = Annotated[float, typer.Option("--nbeta", help="nβ: sample size times inverse temperature.")]
Gamma = Annotated[float, typer.Option("--gamma", help="Precision γ of the localising Gaussian.")]

Inputs = Annotated[int, typer.Argument(metavar="INPUTS", help="Number of inputs.")]
Hidden = Annotated[int, typer.Argument(metavar="HIDDEN", help="Number of hidden units.")]
Outputs = Annotated[int, typer.Argument(metavar="OUTPUTS", help="Number of outputs.")]

T = TypeVar("T")


@app.command()
def deep_linear(
    widths: Annotated[list[int], typer.Argument(metavar="WIDTH...", help="Layer widths, from output to input.")],
    rank: Rank,
    bias: Annotated[bool, typer.Option("--bias", help="An output bias is learned (on the first width).")] = False,
    local: Annotated[
        tuple[int, int] | None, typer.Option("--local", metavar="A B", help="Ranks of the two factors at the point.")
    ] = None,
    as_json: Json = False,
) -> None:
    """A deep linear network, globally or (two layers) at a point."""
    if local is None:
        coefficient = exact.deep_linear(widths, rank, bias)
    else:
        coefficient = exact.deep_linear_local(widths, rank, local)
        if bias:
            coefficient = exact.sum_rule(coefficient, exact.regular(widths[0]))
    _show("deep_linear", coefficient, as_json, widths=widths, rank=rank, bias=bias, local=local)


@app.command()
def reduced_rank(inputs: Inputs, hidden: Hidden, outputs: Outputs, rank: Rank, as_json: Json = False) -> None:
    """Reduced-rank regression: a linear network with one hidden layer."""
    coefficient = exact.reduced_rank(inputs, hidden, outputs, rank)
    _show("reduced_rank", coefficient, as_json, inputs=inputs, hidden=hidden, outputs=outputs, rank=rank)


@app.command()
def normal_crossing(k: Powers, prior: Prior = None, as_json: Json = False) -> None:
    """A monomial K = Π w^(2k)."""
    _show("normal_crossing", exact.normal_crossing(k, _fractions(prior)), as_json, k=k, prior=prior)


@app.command()
def newton(
    exponents: Annotated[list[str], typer.Argument(metavar="E,E,E", help="Exponents of each monomial of K.")],
    prior: Prior = None,
    as_json: Json = False,
) -> None:
    """A nondegenerate K, from its Newton polyhedron: `newton 2,2,0 0,0,2` is (w₀w₁)² + w₂²."""
    monomials = [_listed("a monomial", text, int) for text in exponents]
    _show("newton", exact.newton(monomials, _fractions(prior)), as_json, exponents=monomials, prior=prior)


@app.command()
def polynomial(
    expr: Annotated[str, typer.Argument(metavar="K", help="A polynomial in any variables, such as '(x - y**2)**2'.")],
    prior: Prior = None,
    as_json: Json = False,
) -> None:
    """A polynomial K at the origin: λ exactly or as an upper bound, and which of the two."""
    bound = exact.polynomial(expr, h=_fractions(prior))
    result = {
        "lambda": str(bound.value),
        "value": float(bound.value),
        "multiplicity": bound.multiplicity,
        "exact": bound.exact,
        "lower": str(bound.lower),
        "reason": bound.reason,
        "coordinates": bound.coordinates,
    }
    _print("polynomial", str(bound), result, {"K": expr, "prior": prior}, as_json)


@app.command()
def relu(
    inputs: Inputs,
    outputs: Outputs,
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="UNITS,RANK", help="Units and rank of each activation group.")
    ] = None,
    always_active: Annotated[
        str | None, typer.Option("--always-active", metavar="UNITS,RANK", help="The units active on all inputs.")
    ] = None,
    output_bias: Annotated[bool, typer.Option("--output-bias", help="An output bias is learned.")] = False,
    as_json: Json = False,
) -> None:
    """A ReLU network with one hidden layer whose units never change sides on the data."""
    pairs = [_pair(text) for text in groups or []]
    always = None if always_active is None else _pair(always_active)
    coefficient = exact.relu_three_layer(inputs, outputs, pairs, always_active=always, output_bias=output_bias)
    details = {"inputs": inputs, "outputs": outputs, "groups": pairs}
    _show("relu", coefficient, as_json, **details, always_active=always, output_bias=output_bias)


@app.command()
def tanh(hidden: Hidden, as_json: Json = False) -> None:
    """A tanh network with one input and no biases that has nothing to learn."""
    _show("tanh", exact.tanh_one_input(hidden), as_json, hidden=hidden)


@app.command()
def regular(
    d: Annotated[int, typer.Argument(metavar="D", help="Number of parameters.")], as_json: Json = False
) -> None:
    """A regular model with d parameters: d/2."""
    _show("regular", exact.regular(d), as_json, d=d)


@finite.command("quadratic")
def finite_quadratic(
    eigenvalues: Annotated[
        list[float], typer.Argument(metavar="EIGENVALUE...", help="Eigenvalues of the Hessian of the mean loss.")
    ],
    nbeta: Nbeta,
    gamma: Gamma,
    gradient: Annotated[
        str | None, typer.Option("--gradient", metavar="G,G", help="Gradient along the eigenvectors.")
    ] = None,
    as_json: Json = False,
) -> None:
    """A quadratic basin."""
    slopes = None if gradient is None else _listed("--gradient", gradient, float)
    value = exact.finite.quadratic(eigenvalues, nbeta, gamma, slopes)
    heat = exact.finite.quadratic_heat_capacity(eigenvalues, nbeta, gamma, slopes)
    details = {"eigenvalues": eigenvalues, "gradient": slopes}
    _show_finite("quadratic", value, heat, as_json, **details, nbeta=nbeta, gamma=gamma)


@finite.command("hyperbola")
def finite_hyperbola(nbeta: Nbeta, gamma: Gamma, as_json: Json = False) -> None:
    """K = (w₁w₂)²/2."""
    value, heat = exact.finite.hyperbola(nbeta, gamma), exact.finite.hyperbola_heat_capacity(nbeta, gamma)
    _show_finite("hyperbola", value, heat, as_json, nbeta=nbeta, gamma=gamma)


@finite.command("monomial")
def finite_monomial(k: Powers, nbeta: Nbeta, prior: Prior = None, as_json: Json = False) -> None:
    """K = Π w^(2k) on the unit cube."""
    h = _fractions(prior)
    value, heat = exact.finite.monomial(k, nbeta, h), exact.finite.monomial_heat_capacity(k, nbeta, h)
    _show_finite("monomial", value, heat, as_json, k=k, prior=prior, nbeta=nbeta)


@finite.command("monomial-localized")
def finite_monomial_localized(
    k: Powers,
    nbeta: Nbeta,
    gamma: Gamma,
    scale: Annotated[float, typer.Option("--scale", help="Factor in front of the monomial.")] = 1.0,
    as_json: Json = False,
) -> None:
    """K = scale · Π w^(2k) with a Gaussian localiser."""
    value = exact.finite.monomial_localized(k, nbeta, gamma, scale)
    heat = exact.finite.monomial_localized_heat_capacity(k, nbeta, gamma, scale)
    _show_finite("monomial_localized", value, heat, as_json, k=k, scale=scale, nbeta=nbeta, gamma=gamma)


@finite.command("matrix-product")
def finite_matrix_product(
    m: Annotated[int, typer.Argument(metavar="M")],
    h: Annotated[int, typer.Argument(metavar="H")],
    n: Annotated[int, typer.Argument(metavar="N")],
    nbeta: Nbeta,
    gamma: Gamma,
    as_json: Json = False,
) -> None:
    """K = ‖AB‖²/2 with A of size M×H and B of size H×N."""
    value = exact.finite.matrix_product(m, h, n, nbeta, gamma)
    heat = exact.finite.matrix_product_heat_capacity(m, h, n, nbeta, gamma)
    _show_finite("matrix_product", value, heat, as_json, M=m, H=h, N=n, nbeta=nbeta, gamma=gamma)


def _listed(name: str, text: str, read: Callable[[str], T]) -> list[T]:
    try:
        return [read(item) for item in text.split(",")]
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{name} must be numbers separated by commas, got {text!r} — for example 2,0,2") from None


def _fractions(prior: str | None) -> list[Fraction] | None:
    return None if prior is None else _listed("--prior", prior, Fraction)


def _pair(text: str) -> tuple[int, int]:
    numbers = _listed("a group", text, int)
    if len(numbers) != 2:
        raise InputError(f"a group must be UNITS,RANK, got {text!r} — for example 3,1")
    return numbers[0], numbers[1]


def _show(model: str, coefficient: exact.Coefficient, as_json: bool, **details: Any) -> None:
    value, theta = coefficient
    decimal = "" if value.denominator == 1 else f" ({float(value):.6g})"
    result = {"lambda": str(value), "value": float(value), "multiplicity": theta}
    _print(model, f"λ = [bold]{value}[/bold]{decimal}, multiplicity θ = {theta}", result, details, as_json)


def _show_finite(model: str, value: float, heat: float, as_json: bool, **details: Any) -> None:
    result = {"lambda_t": value, "heat_capacity": heat}
    _print(model, f"λ_t = [bold]{value:.10g}[/bold], t²Var = {heat:.10g}", result, details, as_json)


def _print(model: str, sentence: str, result: dict[str, Any], details: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"model": model, **details, **result}))
        return
    arguments = {name: value for name, value in details.items() if value is not None and value is not False}
    words = ", ".join(f"{name.replace('_', ' ')} {_in_words(value)}" for name, value in arguments.items())
    Console().print(f"{sentence}   [dim]{model.replace('_', ' ')}: {words}[/dim]", highlight=False, soft_wrap=True)


def _in_words(value: Any) -> str:
    """A value as the user would type it: lists without brackets, numbers without a trailing .0, flags as yes."""
    if value is True:
        return "yes"
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        return " ".join(_in_words(item).replace(" ", ",") if nested else _in_words(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
