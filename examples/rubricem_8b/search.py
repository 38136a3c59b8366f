"""A search server with a cache on disk, in SearXNG's form: RUBRICEM_SOURCE=searxng:http://HOST:8888

    python search.py CACHE.db --upstream http://searx:8080    # a SearXNG of your own
    SERPER_API_KEY=... python search.py CACHE.db              # Google's results by serper.dev
    python search.py CACHE.db --replay                        # only what is cached; asks nobody

A step of 32 x 8 rollouts with 10 searches each asks 2,560 times. A query that was asked before, in
whatever case and with whatever spaces, is answered from the cache; the same query asked at once by
many is passed on once. With --replay a training or an evaluation is repeated with the results of
then, and an unknown query finds nothing.
"""

import argparse
import json
import os
import sqlite3
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Results = list[dict[str, Any]]
SERPER = "https://google.serper.dev/search"


class Cache:
    """Results by query, in SQLite; any number of threads."""

    def __init__(
        self, path: Path, search: Callable[[str], Results] | None, at_once: int = 32
    ) -> None:
        """`search` None: what is not cached finds nothing; else at most so many ask it at once."""
        self._search, self._gate = search, threading.Semaphore(at_once)
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS found (query TEXT PRIMARY KEY, results TEXT)")
        self._lock, self._asking = threading.Lock(), dict[str, threading.Lock]()
        self.hits = self.misses = 0

    def find(self, query: str) -> Results:
        """Raises OSError where the upstream fails; nothing of that is kept."""
        query = " ".join(query.casefold().split())
        with self._lock:
            own = self._asking.setdefault(query, threading.Lock())
        with own:
            with self._lock:
                row = self._db.execute(
                    "SELECT results FROM found WHERE query = ?", (query,)
                ).fetchone()
                self.hits, self.misses = self.hits + bool(row), self.misses + (not row)
            if row or self._search is None:
                return json.loads(row[0]) if row else []
            with self._gate:
                found = self._search(query)
            with self._lock, self._db:
                self._db.execute(
                    "INSERT OR REPLACE INTO found VALUES (?, ?)", (query, json.dumps(found))
                )
            return found


def read(request: urllib.request.Request | str) -> Any:
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def searxng(address: str) -> Callable[[str], Results]:
    def search(query: str) -> Results:
        asked = urllib.parse.urlencode({"q": query, "format": "json"})
        found: Results = read(f"{address.rstrip('/')}/search?{asked}").get("results", [])
        return found

    return search


def serper(key: str) -> Callable[[str], Results]:
    headers = {"X-API-KEY": key, "Content-Type": "application/json"}

    def search(query: str) -> Results:
        body = json.dumps({"q": query, "num": 10}).encode()
        found = read(urllib.request.Request(SERPER, body, headers)).get("organic", [])
        return [
            {"title": one.get("title", ""), "url": one["link"], "content": one.get("snippet", "")}
            for one in found
        ]

    return search


def serve(cache: Cache, host: str, port: int) -> ThreadingHTTPServer:
    """A server that is bound, for whoever calls serve_forever."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urllib.parse.urlsplit(self.path)
            query = urllib.parse.parse_qs(place.query).get("q", [""])[0]
            status, reply = 200, dict[str, Any]()
            if place.path == "/search":
                try:
                    reply = {"query": query, "results": cache.find(query)}
                except (OSError, ValueError, KeyError) as error:
                    status, reply = 502, {"error": f"the search behind this cache failed: {error}"}
            elif place.path == "/healthz":
                reply = {"hits": cache.hits, "misses": cache.misses}
            else:
                status = 404
            body = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Queries are nobody's business but the cache's."""

    class Server(ThreadingHTTPServer):
        request_queue_size, daemon_threads = 1024, True

    return Server((host, port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("cache", type=Path)
    parser.add_argument("--upstream", help="the address of a SearXNG; else SERPER_API_KEY is used")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument(
        "--host", default="127.0.0.1", help="0.0.0.0 for several nodes, on a private network"
    )
    parser.add_argument("--port", type=int, default=8888)
    told = parser.parse_args()
    key = os.environ.get("SERPER_API_KEY", "")
    if not (told.replay or told.upstream or key):
        parser.error("name --upstream, set SERPER_API_KEY, or replay what is cached by --replay")
    search = None if told.replay else searxng(told.upstream) if told.upstream else serper(key)
    server = serve(Cache(told.cache, search), told.host, told.port)
    print(f"http://{told.host}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
