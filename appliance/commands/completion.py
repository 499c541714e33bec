"""`rocketbox completion bash`: what bash needs to complete commands and options, made from the parsers themselves."""

import argparse
import importlib
from collections.abc import Iterator

EXAMPLES = """examples:
  source <(rocketbox completion bash)
  rocketbox completion bash | sudo tee /usr/share/bash-completion/completions/rocketbox
"""
SCRIPT = """# bash completion for rocketbox; made by `rocketbox completion bash`
_rocketbox() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" path="" each known="" at
    for ((at = 1; at < COMP_CWORD; at++)); do
        each="${{COMP_WORDS[at]}}"
        [[ $each == -* ]] && continue
        case "$path/$each" in
            {paths}) path="$path/$each" ;;
        esac
    done
    case "$path" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$known" -- "$word"))
    [[ ${{#COMPREPLY[@]}} -eq 0 && $word != -* ]] && COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _rocketbox rocketbox
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=("bash",))


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from appliance.__main__ import ALSO, COMMANDS

    words = {"": sorted(COMMANDS)}
    for name, command in (COMMANDS | {also: COMMANDS[name] for also, name in ALSO.items()}).items():
        parser = argparse.ArgumentParser(prog=name)
        importlib.import_module(command.module).add_arguments(parser)
        words |= dict(_words(f"/{name}", parser))
    print(script(words), end="")
    return 0


def _words(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """Yield path -> what may stand there, for a parser and its verbs."""
    found: list[str] = []
    for action in parser._actions:
        found += [option for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            for verb, inner in action.choices.items():
                found.append(verb)
                yield from _words(f"{path}/{verb}", inner)
        elif action.choices and not action.option_strings:
            found += [str(choice) for choice in action.choices]
    yield path, found


def script(words: dict[str, list[str]]) -> str:
    """Return the bash function over a table path -> words."""
    paths = "|".join(sorted(path for path in words if path))
    cases = "\n".join(f'        "{path}") known="{" ".join(found)}" ;;' for path, found in sorted(words.items()))
    return SCRIPT.format(paths=paths, cases=cases)
