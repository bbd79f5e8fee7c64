"""What one call does, told from its arguments: HTTP verb, SQL statement, shell command.

A judge says read only where nothing in the text can change anything, write where it plainly does, and unknown (held)
for everything that is unclear. Shell: one simple command of a short list with options of a short list; pipes,
redirections, `;`, `&&`, substitutions, variables, escapes and line breaks are unclear. SQL: one SELECT (or WITH, SHOW,
DESCRIBE, EXPLAIN, VALUES) without a writing word, a comment or a function that is not known to be harmless.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from costmodel.trajectory import Effect

MAX_TEXT = 20_000


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_HTTP = {**dict.fromkeys(("GET", "HEAD", "OPTIONS"), Effect.READ),
         **dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), Effect.WRITE)}  # fmt: skip


def http_effect(value: object) -> Effect:
    """The effect of an HTTP request from its method: GET, HEAD and OPTIONS read, as RFC 9110 wants it."""
    return _HTTP.get(value.strip().upper(), Effect.UNKNOWN) if isinstance(value, str) else Effect.UNKNOWN


_READING = ("SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "VALUES")
_WRITING = _set(
    "INSERT UPDATE DELETE MERGE REPLACE UPSERT CREATE ALTER DROP TRUNCATE GRANT REVOKE CALL EXEC EXECUTE DO COPY LOAD "
    "INTO SET LOCK UNLOCK VACUUM ANALYZE ANALYSE ATTACH DETACH PRAGMA BEGIN COMMIT ROLLBACK SHARE OUTFILE DUMPFILE "
    "RENAME REINDEX REFRESH IMPORT EXPORT UNLOAD PUT REMOVE KILL SHUTDOWN HANDLER PREPARE DECLARE FETCH LISTEN NOTIFY "
    "USE RESET COMMENT CLUSTER OPTIMIZE REPAIR FLUSH PURGE START SAVEPOINT"
)
_PLAIN_WRITES = _set("INSERT UPDATE DELETE MERGE REPLACE UPSERT CREATE ALTER DROP TRUNCATE GRANT REVOKE")
_BEFORE_PARENTHESIS = _set(
    "COUNT SUM AVG MIN MAX COALESCE NULLIF IFNULL ISNULL NVL LOWER UPPER LENGTH LEN SUBSTR SUBSTRING TRIM LTRIM RTRIM "
    "ROUND ABS FLOOR CEIL CEILING MOD POWER SQRT CAST CONVERT DATE TIME DATETIME TIMESTAMP EXTRACT DATE_TRUNC "
    "DATE_PART STRFTIME NOW YEAR MONTH DAY HOUR CONCAT CONCAT_WS GROUP_CONCAT STRING_AGG ARRAY_AGG JSON_EXTRACT "
    "ROW_NUMBER RANK DENSE_RANK NTILE LAG LEAD FIRST_VALUE LAST_VALUE GREATEST LEAST OVER IN EXISTS AS AND OR NOT ON "
    "USING ANY ALL SOME BETWEEN WHERE SELECT FROM JOIN UNION INTERSECT EXCEPT HAVING BY THEN ELSE WHEN CASE FILTER "
    "VALUES DISTINCT WITH LIKE IS LIMIT OFFSET VARCHAR CHAR DECIMAL NUMERIC"
)
_LITERAL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def sql_effect(value: object) -> Effect:
    """The effect of a SQL statement."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return Effect.UNKNOWN
    statement = value.strip().removesuffix(";").strip()
    if any(mark in statement for mark in ("--", "/*", "#", "\\", "$", "\0")):
        return Effect.UNKNOWN
    bare = _LITERAL.sub(" ? ", statement)
    if any(mark in bare for mark in (";", "'", '"', "`")) or re.search(r"[?\]]\s*\(", bare):
        return Effect.UNKNOWN
    words = [w.upper() for w in _WORD.findall(bare)]
    if not words:
        return Effect.UNKNOWN
    if words[0] in _PLAIN_WRITES:
        return Effect.WRITE
    if words[0] not in _READING or _WRITING & set(words):
        return Effect.UNKNOWN
    called = re.findall(r"([A-Za-z_][A-Za-z_0-9.]*)\s*\(", bare)
    return Effect.READ if all(c.upper() in _BEFORE_PARENTHESIS for c in called) else Effect.UNKNOWN


_FREE = _set(
    "ls cat head tail wc pwd whoami id uname which stat du df basename dirname realpath readlink cut tr comm cmp diff "
    "md5sum sha1sum sha256sum true false echo printf nl tac rev seq grep egrep fgrep jq uptime free printenv cd"
)
"""Commands none of whose options writes a file or runs another program."""
_WRITERS = _set(
    "rm rmdir mv cp mkdir touch ln chmod chown chgrp truncate dd tee shred install patch kill killall pkill"
)
_GIT_READS = _set("status log show diff blame rev-parse ls-files ls-tree describe shortlog cat-file")
_GIT_WRITES = _set(
    "add commit push pull fetch merge rebase reset checkout switch restore rm mv clean cherry-pick revert apply am "
    "init clone gc"
)
_GIT_OPTION = re.compile(
    r"-(\d+|[nNpsuUwbSGLMzvai]|n\d+|U\d+|p1)|--(stat|oneline|name-only|name-status|short|porcelain|graph|all|decorate|"
    r"cached|staged|numstat|shortstat|patch|no-color|no-patch|no-merges|merges|first-parent|reverse|branch|abbrev-ref|"
    r"show-toplevel|is-inside-work-tree|others|exclude-standard|modified|follow|word-diff|tags|long|dirty|verify|quiet)|"
    r"--(since|until|after|before|author|grep|max-count|pretty|format|date|diff-filter|abbrev|skip)=[^=]*"
)
_LISTING = {
    "branch": ("-a", "-r", "-v", "-vv", "--all", "--list", "--show-current", "--remotes"),
    "remote": ("-v", "--verbose"),
    "tag": ("-l", "--list"),
}
_FIND_FLAGS = _set("-print -print0 -not -o -a -or -and ! -empty -ls -L -H -P -depth -xdev -prune -readable")
_FIND_VALUES = _set(
    "-name -iname -path -ipath -wholename -regex -iregex -type -maxdepth -mindepth -size -mtime -mmin -newer -user "
    "-group -perm -regextype"
)
_RG_OPTION = re.compile(r"-[nilcwvoFSsuxUN0-9]+|--(files|files-with-matches|no-heading|hidden|count|line-number|json|"
                        r"ignore-case|fixed-strings|no-ignore|multiline|color|sort)(=[a-z]+)?")  # fmt: skip
_RG_VALUES = ("-g", "--glob", "-t", "--type", "-A", "-B", "-C", "-e", "-m", "--max-count", "--context")
_CURL_FLAGS = ("-s", "-S", "-sS", "-f", "-L", "-i", "-I", "-v", "-k", "-sL", "-fsSL", "-fsS", "-sSL", "--silent",
               "--fail", "--location", "--head", "--include", "--compressed", "--show-error", "-sI", "-4")  # fmt: skip
_CURL_VALUES = ("-H", "--header", "-A", "--user-agent", "-m", "--max-time", "--connect-timeout", "-u", "--user")
_SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash")


def shell_effect(value: object) -> Effect:
    """The effect of a shell command: its text, or its argument vector."""
    if isinstance(value, str):
        words = _words(value)
    elif isinstance(value, list) and value and all(isinstance(w, str) for w in value):
        words = list(value)
    else:
        return Effect.UNKNOWN
    if len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc"):
        words = _words(words[2])
    if not words:
        return Effect.UNKNOWN
    name = words[0].removeprefix("/usr/bin/").removeprefix("/bin/")
    return _command(name, words[1:])


def _words(text: str) -> list[str]:
    """The words of one simple command; none where it is anything else."""
    if len(text) > MAX_TEXT or any(mark in text for mark in ("`", "$", "\\", "\0")) or "\n" in text.strip():
        return []
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
    if not words or "=" in words[0] or any(c in bare for c in ";&|<>(){}#"):
        return []
    return words


def _command(name: str, rest: Sequence[str]) -> Effect:
    if name in _WRITERS:
        return Effect.WRITE
    if name in _FREE:
        return Effect.READ
    if name in _WITH_OPTIONS:
        return _WITH_OPTIONS[name](rest)
    return Effect.UNKNOWN


def _git(rest: Sequence[str]) -> Effect:
    words = list(rest)
    while words and words[0] in ("--no-pager", "-P"):
        del words[0]
    if len(words) > 1 and words[0] == "-C":
        del words[:2]
    if not words:
        return Effect.UNKNOWN
    verb, options = words[0], words[1:]
    if verb in _GIT_WRITES:
        return Effect.WRITE
    if verb in _LISTING:
        return Effect.READ if all(o in _LISTING[verb] for o in options) else Effect.UNKNOWN
    if verb == "stash":
        return Effect.READ if options == ["list"] else Effect.UNKNOWN
    if verb not in _GIT_READS:
        return Effect.UNKNOWN
    given = options[: options.index("--")] if "--" in options else options
    dashed = [o for o in given if o.startswith("-")]
    return Effect.READ if all(_GIT_OPTION.fullmatch(o) for o in dashed) else Effect.UNKNOWN


def _options(rest: Sequence[str], flags: Callable[[str], bool], values: Sequence[str]) -> bool:
    """Whether all options are of the two kinds: flags, and options that take the next word."""
    i = 0
    while i < len(rest):
        if rest[i] in values:
            i += 1
        elif rest[i].startswith("-") and rest[i] != "-" and not flags(rest[i]):
            return False
        i += 1
    return True


def _find(rest: Sequence[str]) -> Effect:
    if any(c in w for w in rest for c in "*?[") and not any(w in _FIND_VALUES for w in rest):
        return Effect.UNKNOWN
    known = _options(rest, lambda w: w in _FIND_FLAGS, tuple(_FIND_VALUES))
    return Effect.READ if known else Effect.WRITE if "-delete" in rest else Effect.UNKNOWN


def _sed(rest: Sequence[str]) -> Effect:
    if len(rest) >= 2 and rest[0] == "-n" and re.fullmatch(r"\d+(,\d+)?p", rest[1]):
        return Effect.READ if not any(w.startswith("-") for w in rest[2:]) else Effect.UNKNOWN
    return Effect.WRITE if any(re.fullmatch(r"-i.*|--in-place.*", w) for w in rest[:1]) else Effect.UNKNOWN


def _sort(rest: Sequence[str]) -> Effect:
    known = _options(rest, lambda w: re.fullmatch(r"-[nrufbdgihMVsz]+|-k[\d,.nr]+|-t.", w) is not None, ("-k", "-t"))
    return Effect.READ if known else Effect.UNKNOWN


def _rg(rest: Sequence[str]) -> Effect:
    return Effect.READ if _options(rest, lambda w: _RG_OPTION.fullmatch(w) is not None, _RG_VALUES) else Effect.UNKNOWN


def _curl(rest: Sequence[str]) -> Effect:
    words, method = list(rest), "GET"
    for flag in ("-X", "--request"):
        if flag in words and words.index(flag) + 1 < len(words):
            at = words.index(flag)
            method = words[at + 1]
            del words[at : at + 2]
    if http_effect(method) is not Effect.READ:
        return http_effect(method)
    known = _options(words, lambda w: w in _CURL_FLAGS, _CURL_VALUES)
    return Effect.READ if known and not any(w.startswith("@") for w in words) else Effect.UNKNOWN


def _pip(rest: Sequence[str]) -> Effect:
    verb = rest[0] if rest else ""
    if verb in ("install", "uninstall"):
        return Effect.WRITE
    plain = all(not w.startswith("-") for w in rest)
    return Effect.READ if verb in ("list", "show", "freeze") and plain else Effect.UNKNOWN


def _alone(rest: Sequence[str]) -> Effect:
    return Effect.READ if not rest else Effect.UNKNOWN


_WITH_OPTIONS: Mapping[str, Callable[[Sequence[str]], Effect]] = {
    "git": _git, "find": _find, "sed": _sed, "sort": _sort, "rg": _rg, "curl": _curl, "pip": _pip, "env": _alone,
    "hostname": _alone, "date": _alone, "ps": lambda rest: _alone([w for w in rest if w not in ("aux", "-ef", "-e")]),
}  # fmt: skip
JUDGES: Mapping[str, Callable[[object], Effect]] = {"http": http_effect, "sql": sql_effect, "shell": shell_effect}
"""The judges that an effects map can name: `"run_sql(query)" = "sql"`."""
