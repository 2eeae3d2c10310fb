"""Files of eight languages have symbols and statements; a plain text has lines and names."""

import sys
import textwrap

import pytest

from notelab.cited import nearest_range, outline
from tests.notelab.scratch import Scratch
from tests.running import run_program

CUDA = textwrap.dedent(
    """\
    // Why the block
    // has this size.
    #define BLOCK 256

    namespace ring {

    // Adds up.
    template <typename T, int N>
    __global__ void __launch_bounds__(BLOCK)
        reduce_kernel(const T* in,
                      T* out)
    {
        T sum = 0;
        for (int i = threadIdx.x; i < N;
             i += blockDim.x) {
            sum += in[i];
        }
        if (sum > 0) {
            out[0] = sum;
        } else if (sum < 0) {
            out[1] = sum;
        } else {
            out[2] = 0;
        }
        switch (N) {
        case 7:
            out[3] = 1;
            break;
        default:
            break;
        }
        reduce_kernel<float, 2><<<N, BLOCK>>>(
            in,
            out);
    }

    struct Channel {
        int rank;
        void send(int to) { post(to); }
        ~Channel() { close(); }
    };

    enum Kind {
        RING,
        TREE,
    };

    #ifdef USE_NVLS
    int nvls() { return 1; }
    #else
    int nvls() { return 0; }
    #endif

    void Channel::launch(int n)
    {
        try {
            go(n);
        } catch (Error& error) {
            report(error);
        }
    }

    }  // namespace ring
    """
)
RUST = textwrap.dedent(
    """\
    /// A ring.
    #[derive(Debug)]
    pub struct Ring {
        pub rank: usize,
    }

    impl Ring {
        /// Sends.
        #[inline]
        pub fn send(&self, to: usize) -> usize {
            let frame = build(
                to,
                self.rank,
            );
            match frame {
                Some(it) => {
                    push(it)
                }
                None => {}
            }
            if to > 0 {
                one();
            } else {
                two();
            }
            to
        }
    }

    fn after() {}
    """
)
GO = textwrap.dedent(
    """\
    package ring

    // Ring is one.
    type Ring struct {
    \tRank int
    }

    type Sender interface {
    \tSend(to int) error
    }

    const (
    \tA = iota
    \tB
    )

    // Send sends.
    func (r *Ring[T]) Send(to int) error {
    \tif to > 0 {
    \t\tone()
    \t} else if to < 0 {
    \t\ttwo()
    \t} else {
    \t\tthree()
    \t}
    \tswitch to {
    \tcase 1:
    \t\ta()
    \t\tb()
    \tdefault:
    \t\tc()
    \t}
    \tx := Ring{
    \t\tRank: 1,
    \t\tnext: nil,
    \t}
    \treturn nil
    }
    """
)
JAVA = textwrap.dedent(
    """\
    package a;
    /** A ring. */
    @Foo
    public class Ring<T> extends B {
        private int rank;
        /** Sends. */
        @Override
        public int send(int to,
                        int from) throws E {
            if (to > 0) {
                one();
            } else {
                three();
            }
            try {
                a();
            } catch (E e) {
                b();
            } finally {
                c();
            }
            switch (to) {
                case 1:
                    a();
                    break;
                default:
                    b();
            }
            return 0;
        }
        Ring() { this.rank = 1; }
        enum Kind {
            RING,
            TREE;
        }
    }
    """
)
TYPESCRIPT = textwrap.dedent(
    """\
    import {
      a,
      b,
    } from "x";

    /** A ring. */
    export class Ring<T> extends B {
      handler = (x: number) => {
        go(x);
      };
      /** Sends. */
      @dec()
      async send(to: number): Promise<void> {
        await one(to);
      }
    }
    export interface Opts {
      name: string;
      run(x: number): void;
    }
    export const build = async (opts: Opts) => {
      const x = { a: 1 };
      return x;
    };
    namespace N {
      export function inner() {
        return 1;
      }
    }
    """
)
TSX = """\
export const View = () => (
  <p>{name}</p>
);
"""
FILES = {
    "a.cu": CUDA, "a.rs": RUST, "a.go": GO, "a.java": JAVA, "a.ts": TYPESCRIPT, "a.tsx": TSX,
}  # fmt: skip


def accepted(path: str, first: str, last: str) -> bool:
    file = outline.of_file(path, FILES[path].encode())
    lines = [line.strip() for line in FILES[path].split("\n")]
    begin = next(n for n, line in enumerate(lines, 1) if line.startswith(first))
    end = next(n for n, line in enumerate(lines, 1) if n >= begin and line.startswith(last))
    return (
        nearest_range.is_whole(file, begin, end)
        and nearest_range.straddles(file, begin, end) is None
    )


SYMBOLS = {
    "a.cu": "reduce_kernel() Channel Channel.send() Channel.~Channel() nvls() nvls() "
    "Channel.launch()",
    "a.rs": "Ring Ring Ring.send() after()",
    "a.go": "Ring Sender Ring.Send()",
    "a.java": "Ring Ring.send() Ring.Ring() Ring.Kind",
    "a.ts": "Ring Ring.handler() Ring.send() Opts build() N N.inner()",
    "a.tsx": "View()",
}


@pytest.mark.parametrize("path", FILES)
def test_symbols_are_found_in_templates_structs_and_impls(path: str) -> None:
    symbols = outline.of_file(path, FILES[path].encode()).symbols
    names = [symbol.name + {"function": "()", "class": ""}[symbol.kind] for symbol in symbols]
    assert names == SYMBOLS[path].split()


@pytest.mark.parametrize("path", ["a.js", "a.jsx", "a.mjs", "a.ts", "a.tsx"])
def test_every_ending_of_javascript_is_read(path: str) -> None:
    file = outline.of_file(path, b"const one = (a) => {\n  return a;\n};\n")
    assert [(symbol.name, symbol.line, symbol.last) for symbol in file.symbols] == [("one", 1, 3)]


@pytest.mark.parametrize("path", ["a.c", "a.h", "a.hpp", "a.cc", "a.cpp", "a.cu", "a.cuh"])
def test_every_ending_of_the_family_is_read(path: str) -> None:
    file = outline.of_file(path, b"int one(int a)\n{\n    return a;\n}\n")
    assert file.structured
    assert [(symbol.name, symbol.line, symbol.last) for symbol in file.symbols] == [("one", 1, 4)]


@pytest.mark.parametrize(
    ("path", "first", "last"),
    [
        pytest.param("a.cu", "T sum = 0", "T sum = 0", id="a statement"),
        pytest.param("a.cu", "for (int", "}", id="a loop"),
        pytest.param("a.cu", "for (int", "i += blockDim", id="a loop's header"),
        pytest.param("a.cu", "template", "T* out)", id="a template's signature"),
        pytest.param("a.cu", "__global__", "T* out)", id="a signature without its template"),
        pytest.param("a.cu", "T* out)", "T* out)", id="a parameter"),
        pytest.param("a.cu", "} else if", "out[1]", id="a branch up to its last statement"),
        pytest.param("a.cu", "} else {", "out[2]", id="the last branch"),
        pytest.param("a.cu", "case 7", "break;", id="a case"),
        pytest.param("a.cu", "RING", "RING", id="an enumerator"),
        pytest.param("a.cu", "// Why", "// has", id="a comment block"),
        pytest.param("a.cu", "// Why", "#define", id="a macro with its comment"),
        pytest.param("a.cu", "} catch", "report(error)", id="a handler"),
        pytest.param("a.cu", "#ifdef", "#endif", id="a conditional part"),
        pytest.param("a.cu", "struct Channel", "int rank", id="the head of a struct"),
        pytest.param("a.cu", "int rank", "void send", id="neighbours: a field and a method"),
        pytest.param("a.go", "// Ring is", "}", id="a type with its comment"),
        pytest.param("a.go", "func (r", "func (r", id="a method's signature"),
        pytest.param("a.go", "} else if", "two()", id="a branch of Go"),
        pytest.param("a.go", "} else {", "three()", id="the last branch of Go"),
        pytest.param("a.go", "case 1", "b()", id="a case of Go"),
        pytest.param("a.go", "Rank: 1", "next: nil", id="the entries of a literal"),
        pytest.param("a.go", "A = iota", "A = iota", id="a constant"),
        pytest.param("a.go", "Send(to int)", "Send(to int)", id="a member of an interface of Go"),
        pytest.param("a.java", "@Foo", "public class", id="a class's head with its annotation"),
        pytest.param("a.java", "public int send", "int from", id="a signature of Java"),
        pytest.param("a.java", "} finally", "c();", id="a finally"),
        pytest.param("a.java", "case 1", "break;", id="a case of Java"),
        pytest.param("a.java", "RING", "TREE", id="the constants of an enum"),
        pytest.param("a.ts", "a,", "b,", id="imported names"),
        pytest.param("a.ts", "handler =", "};", id="a function in a field"),
        pytest.param("a.ts", "@dec()", "async send", id="a decorated signature"),
        pytest.param("a.ts", "export const build", "};", id="a constant that is a function"),
        pytest.param("a.ts", "run(x", "run(x", id="a member of an interface"),
        pytest.param("a.tsx", "export const View", ");", id="a component"),
        pytest.param("a.rs", "#[derive", "}", id="a struct with its attribute"),
        pytest.param("a.rs", "/// A ring", "}", id="a struct with its comment"),
        pytest.param("a.rs", "pub fn send", "pub fn send", id="a signature"),
        pytest.param("a.rs", "let frame", ");", id="a let"),
        pytest.param("a.rs", "self.rank", "self.rank", id="an argument"),
        pytest.param("a.rs", "Some(it)", "}", id="an arm"),
        pytest.param("a.rs", "} else {", "two()", id="an else"),
    ],
)  # fmt: skip
def test_what_a_careful_reader_cites_is_accepted(path: str, first: str, last: str) -> None:
    assert accepted(path, first, last)


@pytest.mark.parametrize(
    ("path", "first", "last"),
    [
        pytest.param("a.cu", "i += blockDim", "sum += in", id="from the midst of a header"),
        pytest.param("a.cu", "out[2]", "int rank", id="from one symbol into another"),
        pytest.param("a.cu", "T sum = 0", "for (int", id="half a header"),
        pytest.param("a.cu", "struct Channel", "void send", id="a struct's head and a method"),
        pytest.param("a.go", "one()", "} else if", id="from a branch into the next"),
        pytest.param("a.go", "Rank: 1", "return nil", id="from an entry into a statement"),
        pytest.param("a.java", "one();", "switch (to)", id="from a branch into a switch"),
        pytest.param("a.java", "public class", "return 0", id="a class's head and a method"),
        pytest.param("a.ts", "go(x)", "async send", id="from a handler into a method"),
        pytest.param("a.ts", "export interface", "const x", id="from an interface on"),
        pytest.param("a.cu", "reduce_kernel<", "in,", id="half a call"),
        pytest.param("a.rs", "to,", "match frame", id="from an argument into a match"),
        pytest.param("a.rs", "two()", "fn after", id="from one function into another"),
    ],
)  # fmt: skip
def test_what_no_reader_takes_for_a_unit_is_refused(path: str, first: str, last: str) -> None:
    assert not accepted(path, first, last)


@pytest.mark.parametrize("junk", [b"", b"\x00\xff" * 50, b"(" * 90_000, b"{" * 9_000, b"}\n" * 9])
@pytest.mark.parametrize(
    "path", ["a.c", "a.cpp", "a.cu", "a.rs", "a.go", "a.java", "a.js", "a.ts", "a.tsx"]
)
def test_nothing_that_a_repository_holds_breaks_the_reader(path: str, junk: bytes) -> None:
    outline.of_file(path, junk)


def test_python_alone_loads_no_grammar() -> None:
    code = (
        "import sys; from notelab.cited import outline; outline.of_file('a.py', b'x = 1\\n');"
        "outline.of_file('a.md', b'x\\n'); print([m for m in sys.modules if 'tree_sitter' in m])"
    )
    done = run_program(
        [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture
def mixed(scratch: Scratch) -> Scratch:
    """A lab whose note cites a kernel and a text."""
    scratch.upstream.joinpath("pkg/ring.cu").write_text(CUDA)
    scratch.upstream.joinpath("README.md").write_text("All about rings.\n\nRun `ring`.\n")
    scratch.release(
        {
            "`uses`": "`threadIdx`",
            "pkg/scaler.py:L14-L15": "pkg/ring.cu:L14-L17",
            "`combine`": "`rings`",
            "pkg/scaler.py:L22-L25": "README.md:L1",
        }
    )
    scratch.lock()
    return scratch


def test_a_kernel_is_judged_and_a_text_is_counted_apart(mixed: Scratch) -> None:
    report = mixed.check()
    assert report.findings == []
    assert [(note.proved, note.unstructured) for note in report.notes] == [(2, 1), (2, 1)]
    output = mixed.run("check", "experiments/01-scratch").stdout
    assert "2 of them in files without a structure rule" in output
    (lab,) = mixed.check().labs
    ((name, unparsed),) = lab.unparsed.items()
    assert (name.endswith((".txt", ".md", ".sh", ".yml")), unparsed.citations) == (True, 2)
    assert "its language has no structure rule" in unparsed.reason


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("ring.cu:L14-L17", "ring.cu:L13-L15", "N208"),
        ("ring.cu:L14-L17", "ring.cu:L14-L39", "N207"),
        ("`threadIdx`", "`blockIdx`", "N209"),
        ("`rings`", "`squares`", "N209"),
    ],
)
def test_a_wrong_range_or_name_is_found(mixed: Scratch, old: str, new: str, code: str) -> None:
    mixed.replace_both(old, new)
    mixed.lock()
    assert mixed.codes() == [code, code]
