"""Reads `go test -json`, prints what a person wants of it, and counts.

    go test -json ./... | python3 scripts/testsum.py [--out FILE] [--allow-skip PACKAGE/TEST ...]

Each package's closing line is printed, the whole output of a test that failed, and the reason of one
that was skipped. The last line is "N passed, N failed"; --out gets it and the closing lines once more.
Exit 1 when a test or package failed, when a test was skipped that is not allowed to be, or none ran.
"""
import argparse
import json
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file for the closing lines and the count")
    parser.add_argument("--allow-skip", nargs="*", default=[], metavar="PACKAGE/TEST", help="tests that may be skipped")
    args = parser.parse_args()

    output, closing, bad = {}, [], []
    count = {"pass": 0, "fail": 0, "skip": 0}
    for line in sys.stdin:
        try:
            event = json.loads(line)
        except ValueError:  # a build's own words, from an older go
            print(line, end="", flush=True)
            continue
        action, test = event.get("Action"), event.get("Test")
        package = event.get("Package") or event.get("ImportPath", "")
        key = (package, test)
        if action in ("output", "build-output"):
            output.setdefault(key, []).append(event["Output"])
        elif action == "build-fail":
            bad.append(f"{package} does not build")
            print("".join(output.pop(key, [])), end="", flush=True)
        elif action in count and test:
            count[action] += 1
            text = "".join(output.pop(key, []))
            if action == "fail":
                bad.append(f"{package} {test} failed")
                print(text, end="", flush=True)
            elif action == "skip":
                print(text, end="", flush=True)
                if f"{package}/{test}" not in args.allow_skip:
                    bad.append(f"{package} {test} was skipped, and every test must run here")
        elif action in count:  # the package as a whole; "skip" means that it has no tests
            text = output.pop(key, [])
            if action == "fail":
                bad.append(f"{package} failed")
                # A panic or a time-out leaves tests without an end: their output says which.
                for other in [k for k in output if k[0] == package]:
                    print("".join(output.pop(other)), end="")
                print("".join(text), end="", flush=True)
            closing += text[-1:]
            print("".join(text[-1:]) if action != "fail" else "", end="", flush=True)

    if not count["pass"]:
        bad.append("no test passed")
    for reason in bad:
        print(f"testsum: {reason}")
    summary = f"{count['pass']} passed, {count['fail']} failed" + (f", {count['skip']} skipped" if count["skip"] else "")
    print(summary)
    if args.out:
        with open(args.out, "w") as out:
            out.write("".join(closing) + summary + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
