"""Carry out one recipe on the text of one file."""

from __future__ import annotations

import ast

from sid_actors.backends.local import catalog
from sid_actors.backends.local.catalog import BY_NAME
from sid_actors.backends.local.lint import LINT, apply_fix
from sid_actors.backends.local.parameters import find_parameters, set_value
from sid_actors.backends.local.recipe import NUMERIC, Recipe, RecipeFailed
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Source, Unreadable, parse


def apply_recipe(text: str, recipe: Recipe) -> str:
    """Return the text after the change.

    Raises:
        RecipeFailed: the place is not there any more, or the result would be the same or no Python.
    """
    if recipe.transformation == NUMERIC:
        return _set_number(text, recipe)
    if recipe.transformation == LINT:
        return apply_fix(text, recipe.params)
    try:
        source = parse(text)
        site = find_site(source, recipe)
        changed = catalog.apply(site).code
        ast.parse(changed)
    except (Unreadable, NotHere) as error:
        raise RecipeFailed(str(error)) from error
    except (SyntaxError, RecursionError) as error:
        raise RecipeFailed(f"the result is no Python: {type(error).__name__}") from error
    if changed == text:
        raise RecipeFailed("nothing would change")
    return changed


def find_site(source: Source, recipe: Recipe) -> Site:
    """Return the site that a recipe means.

    Raises:
        RecipeFailed: there is none, or no such transformation.
    """
    entry = BY_NAME.get(recipe.transformation)
    if entry is None:
        raise RecipeFailed(f"no transformation is called {recipe.transformation}")
    for occurrence, site in numbered(list(entry.find(source))):
        if recipe_of(entry.name, recipe.path, site, occurrence).key == recipe.key:
            return site
    raise RecipeFailed(f"{recipe.symbol} in {recipe.path} is not as it was when this was proposed")


def numbered(sites: list[Site]) -> list[tuple[int, Site]]:
    """Return each site with its number among those of the same text in the same function."""
    seen: dict[tuple[str, str], int] = {}
    found = []
    for site in sites:
        same = (site.symbol, site.text)
        seen[same] = seen.get(same, -1) + 1
        found.append((seen[same], site))
    return found


def recipe_of(transformation: str, path: str, site: Site, occurrence: int) -> Recipe:
    """Return the recipe of a site."""
    return Recipe(transformation, path, site.symbol, {"digest": site.digest, "occurrence": occurrence})


def _set_number(text: str, recipe: Recipe) -> str:
    value = recipe.params.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RecipeFailed("a number is set to a number")
    for parameter in find_parameters({recipe.path: text}):
        if parameter.symbol == recipe.symbol:
            whole = int(value) if parameter.kind == "int" and value == int(value) else value
            return set_value(text, parameter, whole)
    raise RecipeFailed(f"{recipe.symbol} is no number of {recipe.path} any more")
