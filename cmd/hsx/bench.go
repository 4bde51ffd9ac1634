package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hsx/bench"
	"hsx/validate"
)

func newBenchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench --url URL [--baseline-url URL]",
		Short: "Does speculation pay on the live server, and if not, why?",
		Long: `Measure a running server with speculation, and one without: which is faster, by how
much and how certainly, what accept length was reached against what training promised,
and which part to mend.

The same prompts go to both, run by run in turn. Tokens are those that the server
counts in usage, never chunks. Every finished request is written at once to a journal,
from which 'hsx bench report' prints everything again.

Exit codes with --gate: 0 met; 3 speculation does not pay, or a bound is not met; 4 that
is not certain; 5 there is no verdict. Without it the verdict is text only.`,
		Example: `  hsx bench --url http://127.0.0.1:30000
  hsx bench --url http://a:30000 --baseline-url http://b:30000 --concurrency 1,8,32
  hsx bench --url http://a:30000 --baseline base.jsonl --promised 2.95 --draft draft/
  hsx bench --url http://127.0.0.1:8000 --steps 0..5 --relaunch './serve.sh {steps}'
  hsx bench --resume bench.jsonl --url http://a:30000 --baseline-url http://b:30000
  hsx bench report --html report.html bench.jsonl`,
		GroupID: "serve",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(cmd, &o)
		},
	}
	f := cmd.Flags()
	o.load.add(f)
	o.reach.add(f)
	o.judge.add(f)
	o.judge.addBaseline(f)
	f.StringVar(&o.journal, "journal", "", "write every finished request to this new file (default: hsx-bench-TIME.jsonl)")
	f.StringVar(&o.resume, "resume", "", "go on with this journal of the same measurement; only whole runs in it count")
	completeBench(cmd)
	cmd.AddCommand(newBenchReportCommand(), newBenchCompareCommand())
	return cmd
}

// completeBench offers the values of flags that have few. Only a flag that does not
// exist is an error.
func completeBench(cmd *cobra.Command) {
	for name, values := range map[string][]string{
		"api": apis(), "thinking": {"on", "off", "default"}, "promised-excludes-bonus": {"auto", "true", "false"},
		"family": validate.Families(),
	} {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

type benchOptions struct {
	load            loadFlags
	reach           reachFlags
	judge           judgeFlags
	journal, resume string
}

func runBench(cmd *cobra.Command, o *benchOptions) error {
	judge, err := o.judge.judgement(cmd.Context())
	if err != nil {
		return err
	}
	plan, journal, done, path, err := o.open()
	if err != nil {
		return err
	}
	defer outlastReaders()() // a server that was started is ended first
	talk := cmd.ErrOrStderr()
	_, err = fmt.Fprintf(talk, "%s\njournal: %s\n", plan.Echo(), path)
	bar := newBenchMeter(talk)
	if err == nil {
		err = bench.Run(cmd.Context(), plan, journal, bench.Options{
			Dial: o.reach.dial(plan), Resume: done, ReadyTimeout: o.load.ready, Progress: bar.set,
			Preflight: func(a bench.ArmInfo) error {
				bar.clear()
				var b strings.Builder
				armText(&b, a)
				_, err := io.WriteString(talk, b.String())
				return err
			},
			Notice: func(text string) {
				bar.clear()
				for line := range strings.Lines(text) { // the journal has it too
					_, _ = fmt.Fprintln(talk, printable(strings.TrimSuffix(line, "\n")))
				}
			},
		})
	}
	bar.clear()
	err = errors.Join(err, journal.Close())
	log, readErr := readJournal(path)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case len(log.Passes) == 0 && done == nil: // of no use, and in the way of the next try
		return unreached(errors.Join(err, os.Remove(path)))
	}
	printed := printBench(cmd, log, &o.judge, judge)
	if err != nil {
		return &hintError{err, fmt.Sprintf("what was measured is kept; go on with 'hsx bench --resume %s', and the same keys and headers", path)}
	}
	return printed
}

// unreached adds to an error what can be done about a server that is not reached.
func unreached(err error) error {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &name), errors.Is(err, unix.ECONNREFUSED):
		return &hintError{err, "see that the server is up and listens there: curl URL/health"}
	case errors.As(err, &certificate):
		return &hintError{err, "name the file of the authority's certificate with --ca-cert"}
	}
	return err
}

// printBench judges a measurement and prints the report.
func printBench(cmd *cobra.Command, log *bench.Log, j *judgeFlags, judge bench.Judgement) error {
	judge.Mismatch = j.mismatch(log)
	r := bench.Analyse(log, judge)
	if err := j.write(cmd, r); err != nil {
		return err
	}
	return j.verdict(r)
}

// open makes the plan and its journal, or goes on with that of --resume: there the
// flags that made it need not be repeated.
func (o *benchOptions) open() (bench.Plan, *bench.Journal, *bench.Log, string, error) {
	if o.resume == "" {
		plan, err := o.load.plan()
		if err != nil {
			return plan, nil, nil, "", err
		}
		plan.Command = "hsx " + commandLine(os.Args[1:])
		path := o.journal
		if path == "" {
			path = time.Now().UTC().Format("hsx-bench-20060102-150405.jsonl")
		}
		if err := o.reach.check(plan); err != nil {
			return plan, nil, nil, "", err
		}
		journal, err := bench.CreateJournal(path)
		if errors.Is(err, fs.ErrExist) {
			err = &hintError{err, "go on with it by --resume " + path + ", or name another --journal"}
		}
		return plan, journal, nil, path, err
	}
	if o.journal != "" {
		return bench.Plan{}, nil, nil, "", usagef("--resume, --journal: a measurement goes on in the journal that it has")
	}
	journal, done, err := bench.ResumeJournal(o.resume)
	if err != nil {
		return bench.Plan{}, nil, nil, "", err
	}
	plan := done.Plan
	if o.load.url+o.load.urls+o.load.baselineURL != "" {
		if plan, err = o.load.plan(); err == nil {
			plan.Command, plan.Version = done.Plan.Command, done.Plan.Version
		}
	} else {
		err = o.load.again(&plan)
	}
	if err == nil {
		err = o.reach.check(plan)
	}
	if err != nil {
		return plan, nil, nil, "", errors.Join(err, journal.Close())
	}
	return plan, journal, done, o.resume, nil
}

// commandLine is arguments as a shell takes them.
func commandLine(args []string) string {
	quoted := slices.Clone(args)
	for i, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&|;<>(){}*?[]#~`!") {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

func newBenchReportCommand() *cobra.Command {
	var j judgeFlags
	cmd := &cobra.Command{
		Use:   "report JOURNAL",
		Short: "Print a stored measurement again, without a server",
		Long: `Judge the measurement in a journal of 'hsx bench' again, by the same or by another
promise, margin or baseline, and print it in any form.`,
		Example: "  hsx bench report bench.jsonl\n  hsx bench report --promised train.log --html report.html bench.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			judge, err := j.judgement(cmd.Context())
			if err != nil {
				return err
			}
			log, err := readJournal(args[0])
			if err != nil {
				return err
			}
			return printBench(cmd, log, &j, judge)
		},
	}
	j.add(cmd.Flags())
	j.addBaseline(cmd.Flags())
	completeBench(cmd)
	return cmd
}

func newBenchCompareCommand() *cobra.Command {
	var j judgeFlags
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Hold one stored measurement against another",
		Long: `Compare two journals of 'hsx bench' as if the second were the baseline of the first:
two drafts, two settings of a server, or today and last week. Both must have sent the
same prompts.`,
		Example: "  hsx bench compare new.jsonl old.jsonl",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			judge, err := j.judgement(cmd.Context())
			if err != nil {
				return err
			}
			var logs [2]*bench.Log
			for i := range logs {
				if logs[i], err = readJournal(args[i]); err != nil {
					return err
				}
			}
			judge.Mismatch = j.mismatch(logs[0])
			r := bench.Compare(logs[0], logs[1], judge)
			if err := j.write(cmd, r); err != nil {
				return err
			}
			return j.verdict(r)
		},
	}
	j.add(cmd.Flags())
	completeBench(cmd)
	return cmd
}
