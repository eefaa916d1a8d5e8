"""Decode images at their final size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from penstock.expr.nodes import Call, ColumnRef, Expr, Star, UdfCall, Unnest, rewrite, walk
from penstock.media.images.decoder import ImageDecoder
from penstock.plan.nodes import Plan, Project, UdfProject
from penstock.plan.substitution import named, without_needless_alias


def fuse_decode_resize(plan: Plan) -> Plan:
    """Let decode_image resize as well, if its result is only read by resizes to one size.

    Project(UdfProject(x, decode_image(b) as i), [a, resize(i, 8, 8) as s])
        ->  Project(UdfProject(x, decode_image_resized(b) as i), [a, i as s])

    The full image then never exists: a JPEG is decoded at a fraction of its size, which changes pixels slightly,
    unless ``scaled=False``. The rule applies below select lists and below other UDF calls.
    """
    match plan:
        case Project(UdfProject() as decoding, exprs) if (size := _only_size(decoding, exprs)) is not None:
            fused = _resizing(decoding, size)
            resized = (named(_rewritten(expr, decoding.column), expr.name) for expr in exprs)
            return Project(fused, tuple(map(without_needless_alias, resized)))
        case UdfProject(UdfProject() as decoding, call, keep=keep) if keep is not None and decoding.column not in keep:
            size = _only_size(decoding, (call,))
            if size is None:
                return plan
            changed = cast(UdfCall, _rewritten(call, decoding.column))
            return replace(plan, child=_resizing(decoding, size), call=changed)
        case _:
            return plan


def _only_size(decoding: UdfProject, exprs: Iterable[Expr]) -> tuple[int, int] | None:
    """Return the height and width to which all uses of the decoded column resize it, if they agree."""
    target = decoding.call.udf.target.function
    if not isinstance(target, ImageDecoder) or target.size is not None:
        return None
    image, sizes = ColumnRef(decoding.column), set[tuple[int, int]]()
    for expr in exprs:
        if isinstance(expr, (Star, Unnest)) or expr == image:
            return None
        for node in walk(expr):
            if _is_resize(node, image):
                options = dict(cast(Call, node).options)
                sizes.add((options["h"], options["w"]))
            elif image in node.children:
                return None
    return sizes.pop() if len(sizes) == 1 else None


def _is_resize(node: Expr, image: ColumnRef) -> bool:
    return isinstance(node, Call) and node.function == "resize" and node.args == (image,)


def _resizing(decoding: UdfProject, size: tuple[int, int]) -> UdfProject:
    spec = decoding.call.udf
    decoder = cast(ImageDecoder, spec.target.function).resizing(*size)
    target = replace(spec.target, function=decoder)
    fused = replace(spec, name=f"{spec.name}_resized", target=target, return_dtype=decoder.dtype)
    return replace(decoding, call=replace(decoding.call, udf=fused))


def _rewritten(expr: Expr, column: str) -> Expr:
    image = ColumnRef(column)
    # Collected first: after the inner resize is replaced, an outer one looks like a resize of the image.
    fused = {id(node) for node in walk(expr) if _is_resize(node, image)}
    return rewrite(expr, lambda node: image if id(node) in fused else node)
