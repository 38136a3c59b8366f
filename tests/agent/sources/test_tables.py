"""Tables, and files of nothing else: csv and tsv."""

import time

import pytest

from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import Document, Input
from rubricem.agent.sources.readers.office.delimited import MOST_BYTES
from rubricem.agent.sources.readers.tables import Cell, Row, grid_of, table_blocks


def told(rows: list[Row], headers: int | None = None) -> str:
    return "\n\n".join(block.text for block in table_blocks(rows, headers))


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([["", "2021", "2022"], ["rotor", "5", "7"]], "rotor | 2021: 5 | 2022: 7"),
        ([["", "hours"], ["rotor", "900"], ["seal", "300"]],
         "rotor | hours: 900\nseal | hours: 300"),
        ([["Trials", "", ""], ["By", "Meier", ""], ["part", "hours", "site"],
          ["rotor", "9", "Kiel"]],
         "Trials\nBy Meier\n\npart: rotor | hours: 9 | site: Kiel"),
        ([["Trials"] * 3, ["part", "hours", "site"], ["rotor", "9", "Kiel"]],
         "Trials\n\npart: rotor | hours: 9 | site: Kiel"),
        ([["trial", "flow", "time"], ["", "l/min", "h"], ["a", "12", "3"], ["b", "41", "4"]],
         "trial: a | flow l/min: 12 | time h: 3\ntrial: b | flow l/min: 41 | time h: 4"),
        ([["trial", "flow"], ["a", "n/a"], ["b", "41"]],
         "trial: a | flow: n/a\ntrial: b | flow: 41"),
        ([["1", "41", "new"], ["3", "12", "worn"]], "1 | 41 | new\n3 | 12 | worn"),
        ([["rotor", "2023-05-17"], ["seal", "2023-05-18"]],
         "rotor | 2023-05-17\nseal | 2023-05-18"),
        ([["item", "31.12.2023"], ["sales", "1,234"]], "item: sales | 31.12.2023: 1,234"),
        ([["load", "10", "20", "30"], ["rotor", "1", "4", "2"]],
         "load: rotor | 10: 1 | 20: 4 | 30: 2"),
        ([["Name:", "Ada"], ["Born:", "1815"]], "Name: Ada\nBorn: 1815"),
        ([["Power", "900 W"], ["Colour", "red"], ["Weight", "3 kg"]],
         "Power | 900 W\nColour | red\nWeight | 3 kg"),
        (
            [["part", "hours"], ["seal", "300"], [], ["Spares"], ["ring", "7"], [], ["", "by Bo"]],
            "part: seal | hours: 300\nSpares\npart: ring | hours: 7\nby Bo",
        ),
        (
            [["Name:", "Ada"], ["Born:", "in May"], [], ["course", "fee"], ["Pottery", "45"]],
            "Name: Ada\nBorn: in May\n\ncourse: Pottery | fee: 45",
        ),
        ([["part", "hours:"], "Pumps of Kiel", ["rotor", "900"]],
         "Pumps of Kiel\npart: rotor | hours: 900"),
        ([["part", "hours"], ["rotor", "900"], [], ["site", "flow"], ["Kiel", "12"]],
         "part: rotor | hours: 900\n\nsite: Kiel | flow: 12"),
        ([["part", "hours"], ["rotor", "900"], [], ["seal", "300"], [], ["sum", "1200"]],
         "part: rotor | hours: 900\npart: seal | hours: 300\npart: sum | hours: 1200"),
        ([["Name", "Ada"], ["Born", "in May 1970"], ["Phone", "555 10"], ["City", "Bonn"]],
         "Name: Ada\nBorn: in May 1970\nPhone: 555 10\nCity: Bonn"),
        ([["Capital", "Oslo"], ["Anthem", "None"]], "Capital: Oslo\nAnthem: None"),
        ([["item", "remark"], ["pump", "runs loud since its belt was changed"]],
         "item: pump | remark: runs loud since its belt was changed"),
        ([["lonely"]], "lonely"),
        ([["lonely", "row"]], "lonely | row"),
        ([["a\nb", "c  d"], ["e\tf", " g "]], "a b: c d\ne f: g"),
        ([], ""),
    ],
)  # fmt: skip
def test_a_row_names_its_columns_by_what_is_surely_a_header(rows: list[Row], text: str) -> None:
    assert told(rows) == text


def test_a_header_that_the_file_marks_is_taken_as_it_is() -> None:
    rows: list[Row] = [["1", "2"], ["a", "b"], ["3", "4"]]
    assert told(rows, 1) == "1: a | 2: b\n1: 3 | 2: 4"
    assert told(rows, 2) == "1 a: 3 | 2 b: 4"
    assert told(rows, 0) == "1 | 2\na | b\n3 | 4"
    assert told(rows, 3) == "1 | 2\na | b\n3 | 4"


def test_a_long_table_is_told_in_blocks_that_say_their_rows() -> None:
    rows = [["part", "hours"], *([f"p{n}", str(n)] for n in range(1, 86))]
    blocks = list(table_blocks(rows))
    assert [block.place for block in blocks] == ["rows 2-41", "rows 42-81", "rows 82-86"]
    assert blocks[2].text.splitlines()[0] == "part: p81 | hours: 81"
    assert [block.place for block in table_blocks(rows[:41])] == [""]
    assert [block.place for block in table_blocks(rows[:3], placed=True)] == ["rows 2-3"]


@pytest.mark.parametrize(
    ("cells", "grid", "headers"),
    [
        ([[Cell("a", rows=2), Cell("b")], [Cell("c")]], [["a", "b"], ["a", "c"]], None),
        ([[Cell("a", columns=2), Cell("b")], [Cell("c"), Cell("d"), Cell("e")]],
         [["a", "a", "b"], ["c", "d", "e"]], None),
        ([[Cell("all", columns=2)], [Cell("c"), Cell("d")]], ["all", ["c", "d"]], None),
        ([[Cell("h", is_header=True), Cell("i", is_header=True)],
          [Cell("r", is_header=True), Cell("1")]],
         [["h", "i"], ["r", "1"]], 1),
        ([[Cell("h", is_header=True)], [Cell("i", is_header=True)]], [["h"], ["i"]], None),
        ([[Cell("Ada", columns=2, is_header=True)], [Cell("Born", is_header=True), Cell("1815")],
          [Cell("Died:", is_header=True), Cell("1852")]],
         ["Ada", ["Born:", "1815"], ["Died:", "1852"]], 1),
        ([[Cell("Born", is_header=True), Cell("1815")]], [["Born:", "1815"]], 0),
        ([[Cell("a"), Cell("b", rows=3)], [Cell("c")], [Cell("")]],
         [["a", "b"], ["c", "b"], ["", "b"]], None),
        ([[Cell("a"), Cell("b"), Cell("c", rows=9)], [Cell("d")]],
         [["a", "b", "c"], ["d", "", "c"]], None),
        ([[], [Cell("")], [Cell("a")]], [[], [], ["a"]], None),
    ],
)  # fmt: skip
def test_merged_cells_repeat_over_what_they_cover(
    cells: list[list[Cell]], grid: list[Row], headers: int | None
) -> None:
    assert grid_of(cells) == (grid, headers)


def test_a_row_that_is_named_is_told_by_its_name_alone() -> None:
    rows = [("Born", "1815"), ("Place", "London")]
    cells = [[Cell(name, is_header=True), Cell(value)] for name, value in rows]
    assert told(*grid_of([[Cell("Ada", columns=2, is_header=True)], *cells])) == (
        "Ada\n\nBorn: 1815\nPlace: London"
    )
    assert told(*grid_of(cells)) == "Born: 1815\nPlace: London"


def test_cells_that_claim_to_cover_everything_take_no_more_time_than_the_table() -> None:
    began = time.process_time()
    grid, _ = grid_of([[Cell(f"c{n}", 10**9, 10**9)] for n in range(2000)])
    assert sum(map(len, grid)) < 3_000_000
    wide = [[f"c{n}" for n in range(16_000)], [str(n) for n in range(16_000)]]
    (block,) = table_blocks(wide)
    assert block.text.startswith("c0: 0 | c1: 1 | ")
    assert block.text.endswith(" | c15998: 15998 | c15999: 15999")
    assert (
        len(next(table_blocks([[f"{n:0200}" for n in range(9999)], ["1"] * 9999])).text) < 250_000
    )
    assert time.process_time() - began < 6


def of_csv(content: str | bytes, name: str = "a.csv") -> Document:
    return read(Input.of_bytes(name, content.encode() if isinstance(content, str) else content))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name;born\nAda;1815\n\nEda;1906\n", "name: Ada | born: 1815\nname: Eda | born: 1906"),
        ('a,b\n"x, y\nz",2\n', "a: x, y z | b: 2"),
        ("a, b\n1, \"x, y\"\n", "a: 1 | b: x, y"),
        ("lonely\n", "lonely"),
        ("", ""),
        ("a|b\n1|2\n", "a: 1 | b: 2"),
        ("sep=;\na;b\n1;2,5\n", "a: 1 | b: 2,5"),
        ("\ufeffa;b\r\n1;2\r\n", "a: 1 | b: 2"),
        ("a,b\r1,2\r", "a: 1 | b: 2"),
        ("id,flow,text\n1,41,new; good\n2,12,worn; bad\n",
         "id: 1 | flow: 41 | text: new; good\nid: 2 | flow: 12 | text: worn; bad"),
        ("part,pipe\nrotor,5\" pipe\nseal,3\" pipe\n", 'part: rotor | pipe: 5" pipe\n'
         'part: seal | pipe: 3" pipe'),
    ],
)  # fmt: skip
def test_each_row_of_a_csv_names_its_columns(content: str, said: str) -> None:
    assert "\n\n".join(s.text for s in of_csv(content).sections) == said


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "cp1252"])
def test_a_csv_is_read_in_the_encoding_of_its_first_special_characters(encoding: str) -> None:
    plain = "".join(f"{n},new\n" for n in range(20_000))
    document = of_csv(f"trial,Prüfung\n{plain}20000,müde für größere Läufe\n".encode(encoding))
    assert document.sections[0].text.startswith("trial: 0 | Prüfung: new\n")
    late = of_csv(f"trial,state\n{plain}20000,müde für größere Läufe\n".encode(encoding))
    assert late.sections[-1].text.endswith("trial: 20000 | state: müde für größere Läufe")


def test_a_csv_that_changes_its_encoding_is_read_line_by_line() -> None:
    lines = "".join(f"{n},geprüft\n" for n in range(20_000)).encode()
    document = of_csv(b"trial,state\n" + lines + "20000,für\n".encode("cp1252"))
    assert document.sections[0].text.startswith("trial: 0 | state: geprüft\n")
    assert document.sections[-1].text.endswith("trial: 20000 | state: für")
    assert document.note != ""


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ('A,"5 in\nB,6\n', 'part: A | note: "5 in\npart: B | note: 6'),
        ('A,"5 in"\nB,"6\nC,7\n', 'part: A | note: 5 in\npart: B | note: "6\npart: C | note: 7'),
    ],
)
def test_a_quotation_mark_that_nothing_closes_glues_no_rows(rows: str, told: str) -> None:
    read = "\n".join(b.text for s in of_csv(f"part,note\n{rows}").sections for b in s.blocks)
    assert read == told


def test_a_quotation_mark_that_nothing_closes_swallows_no_rows() -> None:
    rows = "".join(f"{n},new\n" for n in range(1, 5000))
    document = of_csv(f'trial,state\n0,"worn\n{rows}')
    assert document.sections[0].text.startswith('trial: 0 | state: "worn\ntrial: 1 | state: new')
    told = Input.of_bytes("a.tsv", b'part\tnote\n1\t"open\n2\tit is "so"\n')
    assert read(told).sections[0].text == 'part: 1 | note: "open\npart: 2 | note: it is "so"'
    assert document.sections[-1].heading == "rows 4962-5001"
    assert document.note != ""


def test_a_cell_of_ten_megabytes_is_read_whole() -> None:
    cell = "The seal wore out. " * 550_000
    began = time.process_time()
    (section,) = of_csv(f"id,text\n1,{cell}\n2,short\n").sections
    assert section.text == f"id: 1 | text: {cell.strip()}\nid: 2 | text: short"
    assert time.process_time() - began < 8


def test_of_a_table_whose_names_are_longer_than_its_cells_only_a_part_is_told() -> None:
    head = ",".join(f"{n:0200}" for n in range(200))
    document = of_csv(f"{head}\n" + f"{'1,' * 199}1\n" * 5000)
    size = sum(len(section.text) for section in document.sections)
    assert MOST_BYTES < size < 1.1 * MOST_BYTES
    assert f"row {document.sections[-1].heading.rpartition('-')[2]}" in document.note


def test_of_a_table_of_more_rows_than_are_read_the_first_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rubricem.agent.sources.readers.office.delimited.MOST_ROWS", 50)
    rows = "".join(f"part {n},{n}\n" for n in range(1, 60))
    document = of_csv(f"part,hours\n{rows}")
    assert document.sections[-1].text.endswith("part: part 49 | hours: 49")
    assert document.note == "read in part: its first 50 rows"
    assert not of_csv("part,hours\n" + "".join(rows.splitlines(keepends=True)[:49])).note


def test_a_sentence_above_sentences_names_no_column():
    rows = [
        ["UNLOCKED", "No locks are held on the database."],
        ["SHARED", "The database may be read but not written."],
        ["RESERVED", "The process is planning on writing to the database file."],
    ]
    [block] = table_blocks(rows)
    assert block.text.startswith("UNLOCKED | No locks are held on the database.\nSHARED | The")
    short = [["der", "DER data to decode."], ["len", "Its length."], ["out", "What it says now."]]
    assert next(table_blocks(short)).text.startswith("der: DER data to decode.\nlen: Its")
    asked = [["Name", "How content were you with the service that you got?"], ["Ann", "very"]]
    assert "How content" in next(table_blocks(asked)).text.split("\n")[-1]
