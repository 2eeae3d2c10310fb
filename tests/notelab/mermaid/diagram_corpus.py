"""Diagrams that draw, with what a reader sees of each, and diagrams that don't, with the line."""
# ruff: noqa: E501 (a diagram's own lines stay together)

# name: (text, type, texts that must be among the labels)
VALID: dict[str, tuple[str, str, list[str]]] = {
    "flowchart": (
        "%% id: tp-block\nflowchart LR\n  x[x] --> col[column-parallel] -->|GELU| row[row-parallel]\n"
        '  row == "all-reduce ①" ==> qkv & skip\n  qkv -- "all-reduce ②" --> y{{"`**out** y`"}}\n'
        '  subgraph node ["one <b>node</b>"]\n    g0 <-->|"NVLink 4, 450 GB/s<br/>each way"| g1\n'
        "  end\n  classDef hot fill:#f96\n  class x hot\n  linkStyle 0 stroke:red\n"
        '  click x "https://example.org" "tip"\n  style y stroke:#333\n',
        "flowchart",
        ["all-reduce ①", "all-reduce ①", "all-reduce ②", "NVLink 4, 450 GB/s each way",
         "one node", "out y", "GELU", "skip", "g1"],
    ),
    "graph": ("graph TD; a-->b; b-->c[(disk)]\n", "flowchart", ["a", "b", "disk"]),
    "flowchart shapes": (
        'flowchart TD\n  a@{ shape: doc, label: "a page" } --> b@{ shape: cyl }\n  b e1@--> c\n'
        "  e1@{ animate: true }\n",
        "flowchart",
        ["a page", "b", "c"],
    ),
    "flowchart nested": (
        "flowchart TB\n subgraph one [outer]\n  direction LR\n  subgraph two [inner]\n   a-->b\n  end\n"
        " end\n one --> z\n",
        "flowchart",
        ["outer", "inner", "a", "b", "z"],
    ),
    "sequence": (
        "sequenceDiagram\n  autonumber\n  participant C as compute\n  actor N as all-gather\n"
        "  box lightblue ranks\n    participant R\n  end\n  C->>+N: gather unit 1\n"
        "  loop every unit\n    N-->>-C: whole weights\n  end\n  alt prefetched\n    C->>C: forward\n"
        "  else late\n    C-xN: wait\n  end\n  par both\n    C->>N: a\n  and other\n    C->>R: b\n  end\n"
        "  Note over C,N: overlap<br/>here\n  opt maybe\n    R->>C: c\n  end\n",
        "sequence",
        ["compute", "all-gather", "R", "ranks", "gather unit 1", "every unit", "whole weights",
         "prefetched", "late", "both", "other", "overlap here", "maybe"],
    ),
    "gantt": (
        "gantt\n  title FSDP forward\n  dateFormat x\n  axisFormat %L\n  section compute\n"
        "  forward 1 :c1, 20, 60\n  forward 2 :c2, after c1, 40ms\n  section all-gather\n"
        "  all-gather 1 :g1, 0, 20\n  all-gather 2 :crit, g2, after g1, 30ms\n"
        "  ready :milestone, m1, 50, 0ms\n",
        "gantt",
        ["FSDP forward", "compute", "forward 1", "forward 2", "all-gather", "all-gather 1",
         "all-gather 2", "ready"],
    ),
    "gantt dates": (
        "gantt\n  dateFormat YYYY-MM-DD\n  excludes weekends\n  todayMarker off\n"
        "  a task : a1, 2024-01-01, 30d\n  next : after a1, 20d\n",
        "gantt",
        ["a task", "next"],
    ),
    "class": (
        "classDiagram\n  class Shape {\n    <<abstract>>\n    +int sides\n    +area() float\n  }\n"
        '  Shape <|-- Circle : is a\n  Shape "1" --> "many" Point : holds\n  note for Shape "drawn"\n'
        '  namespace Geo {\n    class Line["a line"]\n  }\n',
        "class",
        ["Shape", "Circle", "is a", "holds", "1", "many", "drawn", "a line", "abstract"],
    ),
    "state": (
        "stateDiagram-v2\n  [*] --> Sharded\n  Sharded --> Whole : all-gather\n  state Whole {\n"
        "    [*] --> one\n    --\n    [*] --> two\n  }\n  state \"at rest\" as rest\n"
        "  Whole --> rest\n  note right of rest : memory is low\n  state c <<choice>>\n  rest --> c\n"
        "  rest --> [*]\n",
        "state",
        ["Sharded", "Whole", "all-gather", "one", "two", "at rest", "memory is low"],
    ),
    "er": (
        "erDiagram\n  NOTE ||--o{ CITATION : cites\n  NOTE {\n    string title PK \"its name\"\n"
        "    int words\n  }\n  c[CASE]\n  c ||--|| NOTE : has\n",
        "er",
        ["NOTE", "CITATION", "cites", "title", "words", "its name", "CASE"],
    ),
    "journey": (
        "journey\n  title My day\n  section Go to work\n    Make tea: 5: Me\n    Walk: 3: Me, Cat\n",
        "journey",
        ["My day", "Go to work", "Make tea", "Walk", "Cat"],
    ),
    "gitGraph": (
        'gitGraph\n  commit id: "first"\n  branch fix\n  commit tag: "v1"\n  checkout main\n'
        "  merge fix\n",
        "gitGraph",
        ["first", "fix", "v1", "main"],
    ),
    "pie": (
        'pie showData\n  title Step time\n  "compute" : 70\n  "all-reduce" : 30\n',
        "pie",
        ["Step time", "compute", "all-reduce"],
    ),
    "mindmap": (
        "mindmap\n  root((sharding))\n    tensor\n      ::icon(fa fa-book)\n      rows[by rows]\n"
        "    data\n",
        "mindmap",
        ["sharding", "tensor", "by rows", "data"],
    ),
    "timeline": (
        "timeline\n  title History\n  section old\n    2019 : Megatron : ZeRO\n  2022 : FSDP\n",
        "timeline",
        ["History", "old", "2019", "Megatron", "ZeRO", "FSDP"],
    ),
    "quadrant": (
        "quadrantChart\n  title Reach\n  x-axis Low --> High\n  y-axis Few --> Many\n"
        "  quadrant-1 Expand\n  A: [0.3, 0.6]\n",
        "quadrant",
        ["Reach", "Low", "High", "Few", "Many", "Expand", "A"],
    ),
    "sankey": ("sankey-beta\n\nCompute,Forward,30\nCompute,Backward,60\n", "sankey",
               ["Compute", "Forward", "Backward"]),
    "xychart": (
        'xychart-beta\n  title "Bandwidth"\n  x-axis "size" [small, large]\n'
        '  y-axis "GB/s" 0 --> 900\n  bar [5, 600]\n  line [4, 500]\n',
        "xychart",
        ["Bandwidth", "size", "small", "large", "GB/s"],
    ),
    "block": (
        'block-beta\n  columns 2\n  a["rank 0"] b["rank 1"]\n  a -- "link" --> b\n  block:g\n    c\n'
        "  end\n",
        "block",
        ["rank 0", "rank 1", "link", "c"],
    ),
    "packet": ('packet-beta\n  title Header\n  0-15: "source"\n  16-31: "target"\n', "packet",
               ["Header", "source", "target"]),
    "architecture": (
        "architecture-beta\n  group pod(cloud)[Pod]\n  service gpu(server)[GPU] in pod\n"
        "  service nic(internet)[NIC] in pod\n  gpu:R -- L:nic\n",
        "architecture",
        ["Pod", "GPU", "NIC"],
    ),
    "kanban": (
        "kanban\n  todo[To do]\n    t1[Read layers]@{ assigned: 'ana' }\n  done\n    t2[Pin]\n",
        "kanban",
        ["To do", "Read layers", "ana", "done", "Pin"],
    ),
    "radar": (
        'radar-beta\n  title Costs\n  axis m["memory"], t["time"]\n  curve a["FSDP"]{1, 2}\n',
        "radar",
        ["Costs", "memory", "time", "FSDP"],
    ),
    "requirement": (
        "requirementDiagram\n  requirement proved {\n    id: 1\n    text: every citation\n"
        "    risk: high\n    verifymethod: test\n  }\n  element checker {\n    type: tool\n  }\n"
        "  checker - satisfies -> proved\n",
        "requirement",
        ["proved", "every citation", "checker", "<<satisfies>>"],
    ),
    "c4": (
        'C4Context\n  title System\n  Person(p, "Learner", "reads")\n  System(s, "Workbook")\n'
        '  Rel(p, s, "uses")\n',
        "c4",
        ["System", "Learner", "reads", "Workbook", "uses"],
    ),
    "treemap": ('treemap-beta\n"Memory"\n    "weights": 10\n    "moments": 20\n', "treemap",
                ["Memory", "weights", "moments"]),
    "front matter": (
        "---\ntitle: The whole\nconfig:\n  theme: dark\n---\n%% id: x\n"
        '%%{init: {"flowchart": {"curve": "linear"}}}%%\nflowchart TD\n a --> b\n',
        "flowchart",
        ["The whole", "a", "b"],
    ),
    "carriage returns": ("flowchart TD\r\n  a --> b\r\n", "flowchart", ["a", "b"]),
}  # fmt: skip

# name: (text, the line with the fault)
BROKEN: dict[str, tuple[str, int]] = {
    "unclosed box": ("flowchart TD\n  a --> b[open\n  b --> c\n", 3),
    "two arrows": ("flowchart TD\n  a --> b\n  b --> --> c\n", 3),
    "half an arrow": ("flowchart TD\n  a --> b\n\n  b - c\n", 4),
    "subgraph not ended": ("flowchart TD\n  subgraph s\n  a --> b\n", 3),
    "end too many": ("flowchart TD\n  a --> b\n  end\n", 3),
    "wrong direction": ("flowchart SIDEWAYS\n  a --> b\n", 1),
    "after comments": ("%% id: x\n%% a comment\nflowchart TD\n  %% more\n  a --> b\n  c -> \n", 6),
    "after front matter": ("---\ntitle: t\n---\nflowchart TD\n  a --> b\n  b -->\n  ]\n", 7),
    "after a directive": ('%%{init: {"theme":"dark"}}%%\nflowchart TD\n  a --> b)\n', 3),
    "no such type": ("flowchat TD\n  a --> b\n", 1),
    "empty": ("\n", 1),
    "only a comment": ("%% id: nothing\n", 1),
    "message without arrow": ("sequenceDiagram\n  A->>B: hi\n  A B: hi\n", 3),
    "message without text": ("sequenceDiagram\n  A->>B: hi\n  A->>B\n  B->>A: yes\n", 3),
    "loop not ended": ("sequenceDiagram\n  loop x\n  A->>B: hi\n", 3),
    "deactivated while inactive": ("sequenceDiagram\n  A->>B: hi\n  deactivate A\n", 3),
    "gantt date": ("gantt\n  dateFormat YYYY-MM-DD\n  a : never, 2d\n  b : 2024-01-01, 1d\n", 3),
    "gantt task without dates": ("gantt\n  title x\n  a task\n", 3),
    "class not closed": ("classDiagram\n  class A {\n    +int x\n", 3),
    "class relation": ("classDiagram\n  A <|-- B\n  A <|<| C\n", 3),
    "state arrow": ("stateDiagram-v2\n  a --> b\n  b -> c\n", 3),
    "state not closed": ("stateDiagram-v2\n  state A {\n    b --> c\n", 3),
    "er cardinality": ("erDiagram\n  A ||--o{ B : has\n  A |--| C : x\n", 3),
    "pie without colon": ('pie\n  title t\n  "a" 70\n', 3),
    "pie value below zero": ('pie\n  "a" : 7\n  "b" : -2\n', 3),
    "git branch unknown": ("gitGraph\n  commit\n  checkout nowhere\n", 3),
    "git word": ("gitGraph\n  commit\n  comit\n", 3),
    "mindmap two roots": ("mindmap\n  root\n    a\n  second\n", 4),
    "quadrant point": ("quadrantChart\n  title t\n  A: [0.3 0.6]\n", 3),
    "xychart numbers": ("xychart-beta\n  x-axis [a, b]\n  bar [1, two]\n", 3),
    "packet gap": ('packet-beta\n  0-15: "a"\n  20-31: "b"\n', 3),
    "architecture unknown": ("architecture-beta\n  service a(x)[A]\n  a:R -- L:b\n", 3),
    "block arrow": ("block-beta\n  a b\n  a ->> b\n", 3),
    "journey score": ("journey\n  title t\n  section s\n    Make tea; 5\n", 4),
    "sankey columns": ("sankey-beta\n\na,b,10\na,b\n", 4),
    "radar axis": ('radar-beta\n  axis a["x"], b\n  curve {1,2\n', 3),
    "requirement body": ("requirementDiagram\n  requirement r {\n    id 1\n  }\n", 3),
}
