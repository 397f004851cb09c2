"""A folder taken out of LD_LIBRARY_PATH in a file with structure: what is left parses, data stays, the rest is told."""

from __future__ import annotations

import pytest

from firstlight.shells.commands import ends_in_the_open
from firstlight.shells.kinds import Dialect, dialect_of
from firstlight.shells.library_path import Edited, LineLeft, without_folders

C = "/usr/local/cuda/compat"
SET = f"export LD_LIBRARY_PATH={C}:$LD_LIBRARY_PATH"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"if [ -d X ]; then\n  {SET}\nfi\n", "if [ -d X ]; then\n  :\nfi\n"),
        (f"if [ -d X ]; then\n\t{SET}  # why\nfi\n", "if [ -d X ]; then\n\t:  # why\nfi\n"),
        (f"if a; then\n  {SET}\n  b\nelse\n  {SET}\nfi\n", "if a; then\n  b\nelse\n  :\nfi\n"),
        (f"for x in 1 2; do\n  {SET}\ndone\n", "for x in 1 2; do\n  :\ndone\n"),
        (f"while a; do {SET}; done\n", "while a; do :; done\n"),
        (f"until a; do {SET}; break; done\n", "until a; do break; done\n"),
        (f"case $x in\n  a) {SET} ;;\n  (b|c) y ;;\nesac\n", "case $x in\n  a) : ;;\n  (b|c) y ;;\nesac\n"),
        (f"f() {{\n  {SET}\n}}\n", "f() {\n  :\n}\n"),
        (f"function f {{ {SET}; }}\n", "function f { :; }\n"),
        (f"[ -d {C} ] && {SET}\n", f"[ -d {C} ] && :\n"),
        (f"a &&\n  {SET}\nb\n", "a &&\n  :\nb\n"),
        (f"A=1; {SET}; B=2\n", "A=1; B=2\n"),
        (f"A=1; {SET}\n", "A=1\n"),
        (f"({SET}; prog)\n", "(prog)\n"),
        (f"export A=1 LD_LIBRARY_PATH={C} B=2\n", "export A=1 B=2\n"),
        (f"LD_LIBRARY_PATH={C} A=1\n", "A=1\n"),
        (f'declare -x LD_LIBRARY_PATH="{C}:/b"\n', 'declare -x LD_LIBRARY_PATH="/b"\n'),
        (f'export LD_LIBRARY_PATH="{C}:\\\n/b"\n', 'export LD_LIBRARY_PATH="\\\n/b"\n'),
        (f'LD_LIBRARY_PATH+=":{C}"\n', ""),
        (f'export LD_LIBRARY_PATH="{C}":/b\n', "export LD_LIBRARY_PATH=/b\n"),
        (f"export LD_LIBRARY_PATH=/a:{C}:{C}/\n", "export LD_LIBRARY_PATH=/a\n"),
        (f"export LD_LIBRARY_PATH=${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}{C}\n", ""),
        (f"export LD_LIBRARY_PATH=/a\nexport LD_LIBRARY_PATH={C}\n",
         "export LD_LIBRARY_PATH=/a\nexport LD_LIBRARY_PATH=\n"),
        (f"LD_LIBRARY_PATH=/a\n{SET}\n", "LD_LIBRARY_PATH=/a\nexport LD_LIBRARY_PATH=$LD_LIBRARY_PATH\n"),
        (f'A="x\n{SET}\n"\n{SET}\n', f'A="x\n{SET}\n"\n'),
        (f"a && b\n{SET}\nc | d\n{SET}\n[[ x ]] || e\n{SET}\n", "a && b\nc | d\n[[ x ]] || e\n"),
        (f"{SET}\n# it's\nB=2\n", "# it's\nB=2\n"),
        ("H=/usr/local\nif a; then\n  H=/opt\nfi\nexport LD_LIBRARY_PATH=$H/cuda/compat:/b\n", None),
        ("export LD_LIBRARY_PATH='$H/compat':/b\n", None),
    ],
)  # fmt: skip
def test_a_command_goes_and_its_body_stays_whole(before: str, after: str | None) -> None:
    assert without_folders(before, (C,)).text == (before if after is None else after)


@pytest.mark.parametrize("head", ["cat <<EOF", "cat <<'EOF'", 'cat <<"EOF" > f', "cat <<-EOF", "a <<X | b <<EOF"])
def test_a_line_in_a_here_document_is_data(head: str) -> None:
    extra = "it's data\nX\n" if "X" in head else ""
    before = f"{head}\n{extra}{SET}\nEOF\n{SET}\nB=2\n"
    edited = without_folders(before, (C,))
    assert edited.text == f"{head}\n{extra}{SET}\nEOF\nB=2\n"
    assert edited.left == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"A=1\nadd_path LD_LIBRARY_PATH {C}\n", 2),
        (f"E={C}:/b\nexport LD_LIBRARY_PATH=$E:$LD_LIBRARY_PATH\n", 2),
        (f"for d in {C} /b; do\n  export LD_LIBRARY_PATH=$d:$LD_LIBRARY_PATH\ndone\n", 1),
        (f'eval "export LD_LIBRARY_PATH={C}"\n', 1),
        (f"if [[ -d / ]] {{\n  {SET}\n}}\n", 2),
        (f"A='\n{SET}\n", 2),
    ],
)
def test_what_cannot_be_edited_safely_is_left_and_told_with_its_line(text: str, line: int) -> None:
    edited = without_folders(text, (C,))
    assert edited == Edited(text, (), (LineLeft(line, text.splitlines()[line - 1]),))


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("/h/.config/fish/config.fish", f"set -gx LD_LIBRARY_PATH {C} $LD_LIBRARY_PATH\n", ""),
        (
            "/h/.config/fish/config.fish",
            f"set -x --path LD_LIBRARY_PATH {C} /b\n",
            "set -x --path LD_LIBRARY_PATH /b\n",
        ),
        ("/h/x.fish", f"if a\n  set -pgx LD_LIBRARY_PATH {C}\nend\n", "if a\nend\n"),
        ("/h/x.fish", f"a; and set -gx LD_LIBRARY_PATH {C} $LD_LIBRARY_PATH\n", "a; and :\n"),
        ("/h/.cshrc", f"setenv LD_LIBRARY_PATH {C}:/b\n", "setenv LD_LIBRARY_PATH /b\n"),
        ("/h/.tcshrc", f"if ($?A) setenv LD_LIBRARY_PATH {C}\n", "if ($?A) :\n"),
        ("/etc/environment", f'A=1\nLD_LIBRARY_PATH="{C}:/b"\nB=2', 'A=1\nLD_LIBRARY_PATH="/b"\nB=2'),
        ("/etc/environment", f"A=1\nLD_LIBRARY_PATH={C}\n", "A=1\n"),
        ("/h/.zshrc", f"typeset -T LD_LIBRARY_PATH ll\nll=({C} $ll)\n", "typeset -T LD_LIBRARY_PATH ll\n"),
        ("/h/.zshrc", f"typeset -T LD_LIBRARY_PATH ll\nll=({C} /b)\n", "typeset -T LD_LIBRARY_PATH ll\nll=( /b)\n"),
    ],
)
def test_each_shell_has_its_own_way_to_set_it(path: str, before: str, after: str) -> None:
    assert without_folders(before, (C,), dialect=dialect_of(path, before)).text == after


def test_a_folder_of_the_home_is_known_by_its_short_names() -> None:
    before = 'export LD_LIBRARY_PATH=~/c:"$HOME/c":/b\n'
    assert without_folders(before, ("/home/me/c",), home="/home/me").text == "export LD_LIBRARY_PATH=/b\n"


def test_the_dialect_is_told_by_name_and_first_line() -> None:
    assert dialect_of("/h/x", "#!/usr/bin/env fish\n") is Dialect.FISH
    assert dialect_of("/h/.bashrc", "") is Dialect.SH
    assert dialect_of("/h/.config/environment.d/x.conf", "") is Dialect.ENVIRONMENT


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("A=1\n", True), ("A=1", True), ("", True), ("cat <<E\nE\n", True), ("A=\\\\\n", True),
        ("A=1 \\\n", False), ("if a; then\n", False), ("cat <<E\nx\n", False), ("A='\n", False), ("a &&\n", False),
    ],
)  # fmt: skip
def test_a_line_is_put_behind_a_file_only_where_it_stands_alone(text: str, is_open: bool) -> None:  # noqa: FBT001
    assert ends_in_the_open(text) is is_open


@pytest.mark.parametrize("text", ["(" * 5000, "$(" * 5000, '"$(' * 3000, "{ " * 5000, "A=${", "cat <<E\n"])
@pytest.mark.parametrize("dialect", tuple(Dialect))
def test_a_file_that_is_not_understood_is_left_as_it_is(text: str, dialect: Dialect) -> None:
    whole = f"{text} export LD_LIBRARY_PATH=${{{C}\n"
    assert without_folders(whole, (C,), dialect=dialect).text == whole
