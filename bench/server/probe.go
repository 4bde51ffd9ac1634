package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// probeTokens is enough to see thinking begin and several drafts verified.
const probeTokens = 64

// Probe finds out what runs at the server: health, model, engine and version, how it
// speculates, what it is busy with, whether it thinks, and where accept lengths can be
// had. It sends one short request with params. What it learns, later requests use. With
// an error, what was learned before it is returned too.
func (c *Client) Probe(ctx context.Context, params Params) (*Info, error) {
	info := &Info{URL: c.String(), Model: c.opt.Model, Engine: OpenAI, API: c.opt.API, Insecure: c.opt.Insecure}
	if info.API == "" || info.API == APIAuto {
		info.API = APIChat
	}
	if err := c.healthy(ctx); err != nil {
		return info, err
	}
	var e evidence
	var err error
	if e.models, err = c.listed(ctx); err != nil {
		return info, err
	}
	if info.Model == "" && len(e.models) > 0 {
		info.Model = e.models[0].ID
	}
	c.use(info) // the counters are of this model
	c.gather(ctx, &e)
	info.Engine, info.Why = e.recognise()
	if info.Model == "" && info.API != APISGLang {
		return info, errors.New("/v1/models lists no model: name one with --model")
	}
	info.Version = e.engineVersion()
	info.MaxContext = e.context(info.Model)
	info.Arguments = e.arguments(info.Model)
	maps.DeleteFunc(info.Arguments, func(_, value string) bool { return c.scrub(value) != value })
	info.Load = e.counts.Load
	c.use(info)

	if params.MaxTokens <= 0 || params.MaxTokens > probeTokens {
		params.MaxTokens = probeTokens
	}
	info.Probe = c.Do(ctx, Request{
		Messages: []Message{{Role: "user", Content: "Write the numbers from one to ten in words, three times over."}},
		Params:   params,
	})
	if ctx.Err() != nil {
		return info, ctx.Err()
	}
	if info.Probe.Fault != FaultNone {
		return info, fmt.Errorf("first request: %s", info.Probe.Error)
	}
	after := c.Settle(ctx, func(s Snapshot) bool { return moved(e.counts, s) })
	e.samples = c.samples(ctx, after.Source)
	if e.props != nil {
		c.document(ctx, "/slots", &e.slots)
	}
	info.Speculation = e.speculation(info.Engine, after, &info.Probe)
	info.Speculation.Synthetic = synthetic(info.Arguments)
	info.Thinks, info.ThinksBy = e.thinks(params, &info.Probe)
	change := Delta(e.counts, after, info.Speculation.Steps)
	info.Sources = sources(info, after, change)
	info.Notes = e.notes(info, after, change)
	c.use(info)
	return info, nil
}

// moved reports whether the counters have seen a request since before, or never will.
func moved(before, now Snapshot) bool {
	return now.Source == "" || !sameCounts(before, now)
}

// engineVersion is the version as the engine writes it.
func (e *evidence) engineVersion() string {
	switch {
	case e.sglang != nil:
		return printable(e.sglang.text("version"), 80)
	case e.props != nil:
		return printable(e.props.Build, 80)
	}
	return e.version
}

// notes are what a reader of the results has to know.
func (e *evidence) notes(info *Info, after Snapshot, change Change) []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if len(e.models) > 0 && e.card(info.Model) == nil {
		note("the server does not list model %q", info.Model)
	}
	if to := info.Probe.Redirect; to != "" {
		note("requests are redirected to %s: name that URL, to measure without the detour", to)
	}
	if info.API == APICompletions || info.API == APISGLang {
		note("no chat template is applied on this route: accept lengths are not those of a chat")
	}
	if !info.Probe.Usage {
		note("the server gives no usage: tokens cannot be counted")
	}
	if s := info.Speculation; s.Synthetic != "" {
		note("acceptance is made up by %s", s.Synthetic)
	} else if s.AskedSteps > 0 {
		note("%s asks for %d draft positions, %d run", s.AskedBy, s.AskedSteps, s.Steps)
	}
	if a := change.Accept; a != nil && a.Steps >= 8 && a.Accepted == 0 {
		note("%g drafts were counted and none accepted: a server that extracts hidden states does this, and so does a draft that fits in nothing", a.Steps)
	}
	if info.Speculation.On && info.Probe.Accept == nil {
		switch info.Engine {
		case SGLang:
			if info.API == APIChat || info.API == APICompletions {
				note("this version tells accept lengths of single requests on /generate only (--api sglang)")
			}
		case VLLM:
			note("accept lengths of single requests need --per-request-spec-decode-metrics at the server's start")
		}
	}
	for _, p := range after.Problems {
		if info.Engine == SGLang && strings.Contains(p, "HTTP 404") {
			p += " (SGLang needs --enable-metrics)"
		}
		notes = append(notes, p)
	}
	return notes
}
