package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"hsx/bench"
	"hsx/bench/prompts"
	"hsx/bench/server"
)

// loadFlags say what is sent to which servers.
type loadFlags struct {
	url, baselineURL, urls, steps, relaunch string
	ready                                   time.Duration
	concurrency                             []int
	rates                                   []float64
	dataset                                 string
	prompts, runs, warmUps                  int
	maxTokens, thinking, extra              string
	temperature, topP                       float64
	seed                                    int64
	ignoreEOS, keepText                     bool
	given                                   func(flag string) bool
}

func (l *loadFlags) add(f *pflag.FlagSet) {
	l.given = f.Changed
	f.StringVar(&l.url, "url", "", "the server with speculation, such as http://127.0.0.1:30000")
	f.StringVar(&l.baselineURL, "baseline-url", "", "the same model on a server without speculation; without --url, to store its journal for --baseline")
	f.StringVar(&l.urls, "urls", "", "servers of a sweep by their speculative steps: '1=URL 2=URL', 0 is without speculation")
	f.StringVar(&l.steps, "steps", "", "steps of a sweep that --relaunch starts servers with: 1..10 or 1,2,4; 0 is without speculation")
	f.StringVar(&l.relaunch, "relaunch", "", "command of a sweep that starts the server of --url in the foreground, {steps} filled in")
	f.DurationVar(&l.ready, "ready-timeout", 30*time.Minute, "how long a started server may take until it is healthy")
	f.IntSliceVar(&l.concurrency, "concurrency", nil, "conversations at once, one measurement for each: 1,8,32 (default 1)")
	f.Float64SliceVar(&l.rates, "rate", nil, "conversations started a second, at random times; latency counts from the intended start")
	f.StringVar(&l.dataset, "dataset", "", "JSONL of prompts in the FastChat, ShareGPT, OpenAI-messages or plain form (default: 80 of our own)")
	f.IntVar(&l.prompts, "prompts", 80, "how many different prompts, the same in every run")
	f.IntVar(&l.prompts, "num-prompts", 80, "the same as --prompts: how many different prompts")
	f.IntVar(&l.runs, "runs", 5, "how many times all prompts are measured")
	f.IntVar(&l.runs, "num-runs", 5, "the same as --runs: how many times all prompts are measured")
	f.IntVar(&l.warmUps, "warmup-runs", 2, "runs on other prompts before them, which do not count")
	f.StringVar(&l.maxTokens, "max-tokens", "auto", "longest answer: auto is 2048, or 8192 for a model that thinks")
	f.StringVar(&l.thinking, "thinking", "default", "ask the chat template for thinking: on, off or default")
	f.Float64Var(&l.temperature, "temperature", 0, "of sampling")
	f.Float64Var(&l.topP, "top-p", 0, "of sampling; not sent when 0")
	f.Int64Var(&l.seed, "seed", 42, "of sampling, of arrival times and of the choice of prompts")
	f.BoolVar(&l.ignoreEOS, "ignore-eos", false, "go on after the end of an answer: invites loops, which are the best case of drafting")
	f.StringVar(&l.extra, "extra-body", "", "JSON object of further members of every request")
	f.BoolVar(&l.keepText, "keep-text", false, "keep the answers in the journal")
}

// again is the plan of a journal, with the prompts that it names.
func (l *loadFlags) again(p *bench.Plan) error {
	for _, flag := range []string{
		"steps", "relaunch", "concurrency", "rate", "prompts", "num-prompts", "runs", "num-runs", "warmup-runs",
		"max-tokens", "thinking", "temperature", "top-p", "seed", "ignore-eos", "extra-body", "keep-text",
	} {
		if l.given(flag) {
			return usagef("--resume, --%s: a measurement goes on as it began, want neither this nor --url, or the whole command line again", flag)
		}
	}
	if p.PromptSet != builtIn && l.dataset == "" {
		return usagef("--resume: its prompts are from %s, want --dataset with that file again", p.PromptSet)
	}
	l.prompts, l.seed = p.NumPrompts, int64(p.Seed)
	return l.readPrompts(p)
}

// builtIn is the name of our own prompts.
const builtIn = "built-in"

// check finds what makes no sense before anything is read or sent.
func (l *loadFlags) check() error {
	switch {
	case l.given("prompts") && l.given("num-prompts"), l.given("runs") && l.given("num-runs"):
		return usagef("--prompts, --num-prompts, --runs, --num-runs: one thing is given twice")
	case l.prompts < 1, l.runs < 1, l.warmUps < 0:
		return usagef("--prompts %d, --runs %d, --warmup-runs %d: want at least 1, 1 and 0", l.prompts, l.runs, l.warmUps)
	case l.urls != "" && (l.url != "" || l.relaunch != ""):
		return usagef("--urls: names the servers itself, want neither --url nor --relaunch")
	case (l.steps != "") != (l.relaunch != ""):
		return usagef("--steps: steps are an argument of the server's start, want --relaunch 'CMD {steps}' with it (or --urls)")
	case l.relaunch != "" && !strings.Contains(l.relaunch, "{steps}"):
		return usagef("--relaunch %q: has no {steps}, so every server would be the same", l.relaunch)
	case l.url == "" && l.urls == "" && (l.baselineURL == "" || l.relaunch != ""):
		return usagef("--url: not given, want the root of a running server")
	case !(l.temperature >= 0 && l.temperature <= 1e3), !(l.topP >= 0 && l.topP <= 1):
		return usagef("--temperature %g, --top-p %g: want no negative temperature and a share of at most 1", l.temperature, l.topP)
	case l.ready <= 0:
		return usagef("--ready-timeout %s: want a time above 0", l.ready)
	case len(l.concurrency) > 0 && slices.Min(l.concurrency) < 1, len(l.concurrency) > 0 && slices.Max(l.concurrency) > 4096:
		return usagef("--concurrency %v: want numbers from 1 to 4096", l.concurrency)
	case len(l.rates) > 0 && !(slices.Min(l.rates) >= 1e-4 && slices.Max(l.rates) <= 1e5):
		return usagef("--rate %v: want conversations a second, from 0.0001 to 100000", l.rates)
	}
	return oneOf("--thinking", l.thinking, []string{"on", "off", "default"})
}

// plan reads the prompts and puts the flags together.
func (l *loadFlags) plan() (bench.Plan, error) {
	p := bench.Plan{Runs: l.runs, WarmUpRuns: l.warmUps, Seed: uint64(l.seed), KeepText: l.keepText, Version: version()}
	if err := l.check(); err != nil {
		return p, err
	}
	var err error
	if p.Arms, err = l.arms(); err != nil {
		return p, err
	}
	if p.Levels, err = l.levels(); err != nil {
		return p, err
	}
	if p.Params, err = l.params(); err != nil {
		return p, err
	}
	if err := l.readPrompts(&p); err != nil {
		return p, err
	}
	return p, nil
}

func (l *loadFlags) levels() ([]bench.Level, error) {
	var levels []bench.Level
	for _, c := range l.concurrency {
		levels = append(levels, bench.Level{Concurrency: c})
	}
	for _, r := range l.rates {
		levels = append(levels, bench.Level{Rate: r})
	}
	for i, level := range levels {
		if slices.Contains(levels[:i], level) {
			return nil, usagef("--concurrency, --rate: %s is given twice", level)
		}
	}
	if levels == nil {
		levels = []bench.Level{{Concurrency: 1}}
	}
	return levels, nil
}

func (l *loadFlags) params() (server.Params, error) {
	p := server.Params{Temperature: l.temperature, TopP: l.topP, Seed: &l.seed, IgnoreEOS: l.ignoreEOS}
	if l.thinking != "default" {
		p.Thinking = l.thinking
	}
	if l.maxTokens != "auto" {
		n, err := strconv.Atoi(l.maxTokens)
		if err != nil || n < 1 {
			return p, usagef("--max-tokens: %q is no number of tokens, want auto or 1 and more", l.maxTokens)
		}
		p.MaxTokens = n
	}
	if l.extra != "" {
		if err := json.Unmarshal([]byte(l.extra), &p.Extra); err != nil {
			return p, usagef(`--extra-body: want a JSON object such as {"min_p": 0.1}: %w`, err)
		}
	}
	return p, checkExtra(p.Extra)
}

// checkExtra refuses members that hsx gives itself: another value would be sent, and the
// report would still say and judge by its own.
func checkExtra(body map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(body)) {
		var want string
		switch name {
		case "temperature", "seed", "model":
			want = "give it by --" + name
		case "top_p", "ignore_eos":
			want = "give it by --" + strings.ReplaceAll(name, "_", "-")
		case "max_tokens", "max_completion_tokens", "max_new_tokens":
			want = "give it by --max-tokens"
		case "sampling_seed":
			want = "give it by --seed"
		case "messages", "prompt", "text", "input_ids":
			want = "give prompts by --dataset"
		case "stream", "stream_options", "n", "best_of":
			want = "it decides what is measured, one streamed answer for each request"
		case "sampling_params":
			if inner, ok := body[name].(map[string]any); ok {
				if err := checkExtra(inner); err != nil {
					return err
				}
			}
			continue
		default:
			continue
		}
		return usagef("--extra-body: has %q, which hsx sends itself: %s", name, want)
	}
	return nil
}

func (l *loadFlags) readPrompts(p *bench.Plan) error {
	all, name := prompts.Builtin(), builtIn
	if l.dataset != "" {
		f, err := os.Open(l.dataset)
		if err != nil {
			return fmt.Errorf("open --dataset: %w", err)
		}
		defer func() { _ = f.Close() }() // only read
		if all, err = prompts.Read(f, prompts.Auto); err != nil {
			return fmt.Errorf("read --dataset %s: %w", l.dataset, err)
		}
		name = filepath.Base(l.dataset)
	}
	if l.prompts > len(all) {
		if l.given("prompts") || l.given("num-prompts") {
			return usagef("--prompts %d: the set %s has %d; --runs says how often all are measured", l.prompts, name, len(all))
		}
		l.prompts = len(all)
	}
	seed := uint64(0) // the first of our own, which are balanced over their categories
	if l.dataset != "" {
		seed = uint64(l.seed)
	}
	p.Prompts, p.PromptSet = prompts.Select(all, l.prompts, seed), name
	p.NumPrompts, p.Digest = len(p.Prompts), prompts.Digest(p.Prompts)
	p.WarmUp = prompts.WarmUp()
	return nil
}

// arms are the servers under test, the baseline last.
func (l *loadFlags) arms() ([]bench.Arm, error) {
	var arms []bench.Arm
	sweep := func(steps int, url, launch string) error {
		a := bench.Arm{Name: fmt.Sprintf("steps=%d", steps), Role: bench.Spec, URL: url, Steps: steps, Launch: launch}
		if steps == 0 {
			a.Name, a.Role = "baseline", bench.Baseline
		}
		if slices.ContainsFunc(arms, func(o bench.Arm) bool { return o.Name == a.Name }) {
			return fmt.Errorf("%s is there twice", count(int64(steps), "step"))
		}
		arms = append(arms, a)
		return nil
	}
	switch {
	case l.urls != "":
		for _, field := range strings.Fields(l.urls) {
			n, url, ok := strings.Cut(field, "=")
			steps, err := strconv.Atoi(n)
			if !ok || err != nil || steps < 0 || url == "" {
				return nil, usagef("--urls: %q is not STEPS=URL", field)
			}
			if err := sweep(steps, url, ""); err != nil {
				return nil, usagef("--urls: %w", err)
			}
		}
	case l.relaunch != "":
		list, err := parseSteps(l.steps)
		if err != nil {
			return nil, usagef("--steps: %w", err)
		}
		for _, n := range list {
			if err := sweep(n, l.url, strings.ReplaceAll(l.relaunch, "{steps}", strconv.Itoa(n))); err != nil {
				return nil, usagef("--steps: %w", err)
			}
		}
	case l.url != "":
		arms = append(arms, bench.Arm{Name: "speculation", Role: bench.Spec, URL: l.url})
	}
	if l.baselineURL != "" {
		if slices.ContainsFunc(arms, func(a bench.Arm) bool { return a.Role == bench.Baseline }) {
			return nil, usagef("--baseline-url: 0 steps are a baseline already")
		}
		arms = append(arms, bench.Arm{Name: "baseline", Role: bench.Baseline, URL: l.baselineURL})
	}
	return arms, nil
}

// parseSteps reads "1..10" or "1,2,4".
func parseSteps(text string) ([]int, error) {
	const most = 64
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "..")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || a < 0 || b < a || b > most {
			return nil, fmt.Errorf("%q is no range of steps, want something like 1..10 or 1,2,4, at most %d", part, most)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}
