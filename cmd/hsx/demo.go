package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// demoData is the small real dumps that the demo works on. An embedded file system
// has to be a package variable; nothing writes to it.
//
//go:embed demodata
var demoData embed.FS

func newDemoCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show ingest, inspect, verify, validate and bench on small real dumps",
		Long: `Run hsx on small real dumps that it carries: files of a tiny model's states, one of them
cut short and one with a wrong layer. Then measure what comes of that layer on two
simulated servers, which generate no language. Every command is printed before it runs.
Nothing is kept, unless --dir names a place for it.`,
		Example: "  hsx demo\n  hsx demo --dir demo",
		GroupID: "other",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "work in this new directory and keep it")
	return cmd
}

// demo runs command lines in a directory of its own and tells what they show.
type demo struct {
	cmd   *cobra.Command
	dir   string
	short *strings.Replacer // of paths and URLs in what is printed
	err   error             // the first surprise: it ends the demo
}

func runDemo(cmd *cobra.Command, dir string) (err error) {
	keep := dir != ""
	if !keep {
		if dir, err = os.MkdirTemp("", "hsx-demo-"); err != nil {
			return err
		}
		defer outlastReaders()()
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	} else if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make the demo's directory: %w", err)
	}
	files, err := fs.Sub(demoData, "demodata")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	servers, err := startDemoServers()
	if err != nil {
		return fmt.Errorf("start the simulated servers: %w", err)
	}
	defer servers.stop()
	d := &demo{cmd: cmd, dir: dir, short: strings.NewReplacer(
		dir+string(filepath.Separator), "", servers.spec, "$DRAFTING", servers.baseline, "$PLAIN")}

	d.say("A dump of five samples, as SpecForge writes them. What is in a file?")
	d.run(exitDone, "inspect", "dumps/rows_0-2000/data_3.ckpt")
	d.say("The file does not say which layers its 192 columns come from. We know: the hooks took\nthe outputs of layers 0, 2 and 3. One of the five files was cut short by a full disk.")
	d.run(exitBadData, "ingest", "--out", "ds", "--layers", "0,2,3", "--target", "config.json", "dumps")
	d.say("The cut file was named and left where it is; the four good ones are in the dataset.")
	d.run(exitDone, "inspect", "ds")
	d.run(exitDone, "verify", "ds")
	d.say("The same command again reads nothing twice; only the cut file is tried again.")
	d.run(exitBadData, "ingest", "--out", "ds", "--layers", "0,2,3", "--target", "config.json", "dumps")
	d.say("Now one bit of a state flips on the disk.")
	d.flip("ds/shards/000000.arrow")
	d.run(exitBadData, "verify", "ds")
	d.flip("ds/shards/000000.arrow")
	d.say("hsx found the bit and the sample that it is in. We put it back, and ask what no checksum\ncan answer: are these the layers that draft.json means, and the server that is to run it?")
	d.run(exitDone, "validate", "--layers", "0,2,3", "--draft", "draft.json", "--server", "sglang", "--target", "config.json", "ds")
	d.say("They are, for SGLang; other servers would read other layers from that config. Then somebody\nchanged the hooks. The new dump has the same names, shapes and types.")
	d.run(exitDone, "ingest", "--out", "ds2", "--layers", "0,2,3", "--target", "config.json", "changed")
	d.run(exitBadData, "validate", "--layers", "0,2,3", "--draft", "draft.json", "--server", "sglang", "--target", "config.json", "ds2")
	d.say("Its first state is the embedding, which the states alone prove. Had nobody asked, a draft\nwould have been trained on it, and served. Two simulated servers, which generate no\nlanguage, stand for the model with that draft and without. Does it pay? That takes ten\nseconds.")
	d.excerpt(nil, "bench", "--url", servers.spec, "--baseline-url", servers.baseline, "--concurrency", "20", "--prompts", "20", "--warmup-runs", "1", "--journal", "bench.jsonl")
	d.say("The journal keeps every request, and is judged again without a server. Training promised\nthat 75, 70 and 65 %% of what reaches each of three positions would be accepted. Was it?")
	d.excerpt([]string{"promise", "diagnosis"}, "bench", "report", "--promised", "[0.75,0.7,0.65]", "bench.jsonl")
	d.say("The first position is where a wrong layer shows, as hsx validate found it before training.\nNext, on your own dumps and servers:\n\n" +
		"    hsx ingest --dry-run DUMPS                              what would be read, and as what\n" +
		"    hsx ingest --out ds --layers 2,30,58 --target config.json DUMPS\n" +
		"    hsx verify ds\n" +
		"    hsx validate --layers 2,30,58 --draft draft/ --target target/ ds\n" +
		"    hsx bench --url URL --baseline-url URL --promised train.log --data ds --draft draft/")
	if keep {
		d.say("The files are in %s.", dir)
	}
	return d.err
}

func (d *demo) say(f string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.cmd.OutOrStdout(), "\n"+f+"\n\n", args...)
	}
}

// run runs one hsx command as a user would type it in the demo's directory.
func (d *demo) run(want int, args ...string) {
	d.show(d.cmd.OutOrStdout(), want, args...)
}

// excerpt is run for a command that ends well and prints much: of its output only the
// first paragraph and those with the given first lines are shown.
func (d *demo) excerpt(headings []string, args ...string) {
	var out bytes.Buffer
	d.show(&out, exitDone, args...)
	if d.err != nil {
		return
	}
	var shown []string
	const leftOut = "[...]"
	for i, p := range strings.Split(strings.TrimSpace(out.String()), "\n\n") {
		heading, _, _ := strings.Cut(p, "\n")
		switch {
		case i == 0 || slices.Contains(headings, heading):
			shown = append(shown, p)
		case shown[len(shown)-1] != leftOut:
			shown = append(shown, leftOut)
		}
	}
	_, d.err = fmt.Fprintln(d.cmd.OutOrStdout(), strings.Join(shown, "\n\n"))
}

// show prints a command, and runs it with its output to w.
func (d *demo) show(w io.Writer, want int, args ...string) {
	if d.err != nil {
		return
	}
	out := d.cmd.OutOrStdout()
	line := commandLine(args)
	if _, d.err = fmt.Fprintf(out, "$ hsx %s\n", d.short.Replace(line)); d.err != nil {
		return
	}
	// The commands work on files of this directory: put it before what the user reads
	// as relative, and take it out of what they print.
	full := make([]string, len(args))
	for i, a := range args {
		full[i] = a
		if p := filepath.Join(d.dir, a); i > 0 && !strings.HasPrefix(a, "-") && (args[i-1] == "--out" || args[i-1] == "--journal" || exists(p)) {
			full[i] = p
		}
	}
	root := newRoot()
	root.SetArgs(full)
	root.SetOut(&replacing{w, d.short})
	root.SetErr(&replacing{out, d.short})
	err := root.ExecuteContext(d.cmd.Context())
	if code := status(io.Discard, err); code != want {
		d.err = fmt.Errorf("demo: hsx %s: exit %d, want %d: %w", line, code, want, err)
		return
	}
	if want != exitDone {
		_, d.err = fmt.Fprintf(out, "(exit %d)\n", want)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// flip changes one bit in the middle of a file.
func (d *demo) flip(name string) {
	if d.err != nil {
		return
	}
	path := filepath.Join(d.dir, name)
	data, err := os.ReadFile(path)
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(path, data, 0o644)
	}
	d.err = err
}

// replacing shortens paths and URLs in what is written.
type replacing struct {
	w     io.Writer
	short *strings.Replacer
}

func (r *replacing) Write(p []byte) (int, error) {
	if _, err := r.short.WriteString(r.w, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
