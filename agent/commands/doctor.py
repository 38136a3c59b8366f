"""`rubricem doctor`: what is configured, what answers and what is missing, with the remedies."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click
from pydantic import SecretStr

from agent.check import Check, fault_of
from agent.checks import check_python, run_checks, without_password
from agent.mcp_tools.config import ToolServer
from agent.settings import Settings, load_settings
from agent.sources.names import SEARXNG
from memory.errors import SettingsError

_SHOWN_SECRET = 12
"""a secret shorter than this shows no letter of itself"""


@click.command()
@click.option("--model", help="Check as if this model had been named.")
@click.option("--base-url", help="Check as if this server had been named.")
@click.option("--source", multiple=True, help="Check this source; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **flags: Any) -> None:
    """Say what is configured, what answers and what is missing, and how to mend it.

    Exits with 0 when `rubricem ask` would work, else with 1.
    """
    settings, checks = _examine(flags)
    click.echo(_as_json(settings, checks) if as_json else _as_text(settings, checks))
    ctx.exit(0 if _works(checks) else 1)


def _examine(flags: dict[str, Any]) -> tuple[Settings | None, list[Check]]:
    try:
        settings = load_settings(flags)
    except SettingsError as error:
        return None, [check_python(), fault_of("settings", error)]
    return settings, asyncio.run(run_checks(settings))


def _works(checks: list[Check]) -> bool:
    return all(check.state != "fault" for check in checks)


def shown(value: object) -> object:
    """A setting's value, fit to be shown to anyone: keys and passwords are left out."""
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return f"set (…{secret[-2:]})" if len(secret) >= _SHOWN_SECRET else "set"
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    if isinstance(value, ToolServer):
        value = value.told()
    if isinstance(value, Mapping):
        return {name: shown(held) for name, held in value.items()}
    if isinstance(value, str) and value.startswith(SEARXNG):
        return SEARXNG + str(shown(value.removeprefix(SEARXNG)))
    return without_password(value) if isinstance(value, str) and "://" in value else value


def _rows(settings: Settings | None) -> dict[str, dict[str, object]]:
    if settings is None:
        return {}
    return {
        name: {"value": shown(getattr(settings, name)), "origin": settings.origin(name)}
        for name in Settings.model_fields
    }


def _as_json(settings: Settings | None, checks: list[Check]) -> str:
    found = {
        "works": _works(checks),
        "settings": _rows(settings),
        "checks": [asdict(check) for check in checks],
    }
    return json.dumps(found, default=str, ensure_ascii=False, indent=2)


def _as_text(settings: Settings | None, checks: list[Check]) -> str:
    lines = ["settings"] if settings else []
    for name, row in _rows(settings).items():
        lines.append(f"  {name:15} {_plain(row['value'])}  [{row['origin']}]")
    lines.append("checks")
    for check in checks:
        lines.append(f"  {check.state:6} {check.name:15} {check.found}")
        if check.remedy:
            lines.append(f"  {'':22} -> {check.remedy}")
    lines.append("ask works" if _works(checks) else "ask would fail: mend the faults above")
    return "\n".join(lines)


def _plain(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
