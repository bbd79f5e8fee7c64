"""Judges of single calls: only what plainly changes nothing reads; everything unclear is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.trajectory import RUNS_FREELY, Effect
from hwprofiles.errors import InputError
from simulator.effects import effect_map
from simulator.effects_file import read_effects
from simulator.init_tools import tool_notes
from simulator.judges import http_effect, shell_effect, sql_effect
from simulator.traces import read_trace

READ, WRITE, UNKNOWN = Effect.READ, Effect.WRITE, Effect.UNKNOWN

SHELL = {
    READ: [
        "ls", "ls -la src", "cat a.py", "/bin/cat a", "grep -rn 'a|b' .", "grep \"a;b\" f", "git status --short",
        "git --no-pager log --oneline -5", "git -C repo diff HEAD~1 -- a.py", "git branch --show-current",
        "find . -name '*.py' -type f", "sed -n 1,20p f", "sort -k 2 -n f", "rg -n 'x' src", "curl -s http://x/y",
        "curl -X GET -H 'A: b' http://x", "pip list", "bash -lc 'ls -l'", "env", "wc -l f", "pwd",
    ],
    WRITE: [
        "rm -rf x", "mkdir a", "git commit -m x", "git push", "sed -i s/a/b/ f", "find . -delete",
        "curl -X POST http://x", "curl --request DELETE http://x", "pip install x", "tee f",
    ],
    UNKNOWN: [
        "", " ", "python x.py", "make", "sudo ls", "./ls", "/opt/ls", "ls; rm x", "ls && rm x", "ls & rm x",
        "ls | sh", "cat a | tee b", "echo x > f", "echo x >> f", "cat < f", "cat <<EOF", "ls\nrm x", "echo $(rm x)",
        "echo `rm x`", "echo $X", "echo \\$X", "FOO=1 ls", "PAGER=x git log", "env rm x", "xargs rm", "awk 1 f",
        "ls # x", "{ rm x; }", "(rm x)", "ls 'unclosed", "git -c core.pager=x log", "git diff --output=x",
        "git diff --outp=x", "git log -Ox", "git branch new", "git tag v1", "git stash", "git grep -O x", "git",
        "find . -exec rm {} +", "find . -fprint x", "find . -ok rm", "sed s/a/b/ f", "sed -n 'w out' f",
        "sed -n 1,2p -i f", "sort -o f f", "sort --output=f f", "sort --compress-program=x f", "rg --pre x y",
        "curl -d a http://x", "curl -o f http://x", "curl -O http://x", "curl -K f", "curl -T f http://x", "curl -X",
        "pip list --log f", "date -s 1", "hostname x", "tree -o f", "less f", "vim f", "uniq a b", "xxd -r a b",
        "docker ps", "kubectl get pods", "npm ls", "wget x", "a" * 30_000,
    ],
}  # fmt: skip
SQL = {
    READ: [
        "select * from t", "SELECT count(*), lower(name) FROM t WHERE a IN (1, 2) GROUP BY b;", "show tables",
        "WITH x AS (SELECT 1) SELECT * FROM x", "SELECT 'drop; table' FROM t", "select \"update\" from t",
        "SELECT updated_at FROM t", "explain select 1", "VALUES (1), (2)", "select 'it''s'",
    ],
    WRITE: [
        "INSERT INTO t VALUES (1)", "update t set a = 1", "DELETE FROM t", "DROP TABLE t", "TRUNCATE t",
        "MERGE INTO t",
    ],
    UNKNOWN: [
        "", "x", "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "SELECT 1; DROP TABLE t",
        "SELECT * INTO x FROM t", "SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR SHARE",
        "EXPLAIN ANALYZE DELETE FROM t", "SELECT pg_terminate_backend(1)", "SELECT nextval('s')",
        "SELECT \"lo_export\"(1, 'f')", "SELECT [f](1)", "SELECT 1 -- x", "SELECT /*! 1 */ 2", "SELECT 1 # x",
        "SELECT E'\\''; DROP TABLE t", "SELECT $$x$$", "SELECT * FROM t INTO OUTFILE 'f'", "CALL p()", "EXEC p",
        "DO $$ x $$", "PRAGMA user_version = 3", "SET a = 1", "BEGIN", "COPY t TO 'f'", "SELECT 'unclosed", "VACUUM",
        "ATTACH 'f' AS x", "LOAD DATA INFILE 'x' INTO TABLE t",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("effect", "command"), [(e, c) for e, cs in SHELL.items() for c in cs])
def test_shell_commands(effect, command):
    assert shell_effect(command) is effect


def test_argument_vectors():
    assert shell_effect(["git", "status"]) is READ
    assert shell_effect(["bash", "-lc", "ls -l"]) is READ
    assert shell_effect(["bash", "-lc", "ls && rm x"]) is UNKNOWN
    assert shell_effect(["bash", "x.sh"]) is UNKNOWN
    for value in (None, 3, [], [1], {"a": 1}, ["ls", None]):
        assert shell_effect(value) is UNKNOWN


@pytest.mark.parametrize(("effect", "statement"), [(e, s) for e, ss in SQL.items() for s in ss])
def test_sql_statements(effect, statement):
    assert sql_effect(statement) is effect


def test_http_verbs():
    assert [http_effect(v) for v in ("GET", " head ", "post", "DELETE", "CONNECT", "", None, 3)] == [
        READ, READ, WRITE, WRITE, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN,
    ]  # fmt: skip


@given(st.text(max_size=40))
def test_no_text_with_an_operator_outside_quotes_runs_freely(text):
    for end in ("; rm x", " && rm x", " | sh", " > f", "\nrm x", " $(rm x)", " `rm x`"):
        if not set("'\"") & set(text):
            assert shell_effect(text + end) not in RUNS_FREELY
    if not set("'\"`") & set(text):
        assert sql_effect(text + "; DROP TABLE t") not in RUNS_FREELY
        assert sql_effect(text + " DELETE FROM t") not in RUNS_FREELY


def test_judges_in_a_map(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(
        '"run_sql(query)" = "sql"\n"http_*(request.method)" = "http"\n"Bash(command)" = "shell"\n'
        '"Bash(command=make*)" = "read"\nBash = "write"\n'
    )
    known = read_effects(path)
    assert known.classify("run_sql", {"query": "select 1"})[0] is READ
    assert known.classify("mcp__db__run_sql", {"query": "drop table t"})[0] is WRITE
    assert known.classify("http_call", {"request": {"method": "GET"}})[0] is READ
    assert known.classify("http_call", {"method": "GET"})[0] is UNKNOWN
    assert known.classify("Bash", {"command": "make x"})[0] is READ  # the glob before the judge
    assert known.classify("Bash", {"command": "ls | sh"})[0] is UNKNOWN  # the judge before the bare name
    assert known.classify("Bash", None)[0] is WRITE
    assert "run_sql(query)" in known.classify("run_sql", {"query": "select 1"})[1]


def test_a_judge_needs_an_argument():
    with pytest.raises(InputError, match="judges an argument"):
        effect_map({"Bash": "shell"})
    with pytest.raises(InputError, match="NAME\\(ARGUMENT=GLOB\\)"):
        effect_map({"Bash(command)": "read"})


def test_harness_tools_are_known_and_their_shells_judged(tmp_path):
    found = effect_map({}).classify
    assert found("apply_patch", declared="codex")[0] is WRITE
    assert found("shell", {"command": ["bash", "-lc", "ls"]}, declared="codex")[0] is READ
    assert found("exec_command", {"cmd": "ls | sh"}, declared="codex")[0] is UNKNOWN
    assert found("Bash", {"command": "git log"}, declared="claude-code")[0] is READ
    assert found("bash", {"command": "git log"}, declared="swe-agent")[0] is READ
    assert found("Bash", {"command": "git log"})[0] is UNKNOWN  # only where the format says that these are its tools


def test_init_lists_judged_tools_with_their_mix():
    from pathlib import Path

    known = effect_map({})
    work = read_trace(Path(__file__).parent / "data" / "mini_swe_agent.json").workload
    (note,) = tool_notes(work, known)
    assert (note.name, note.effect) == ("bash", UNKNOWN)
