// Package bench measures a live server: whether speculation pays, with what certainty,
// and if not, which part to mend. It sends the same prompts to one or more arms, writes
// every finished request to a journal at once, and derives the whole report from that
// journal alone, so that a report needs no server. It knows nothing of hidden states.
package bench

import (
	"fmt"
	"strconv"
	"time"

	"hsx/bench/prompts"
	"hsx/bench/server"
)

// Role is what an arm is for in the comparison.
type Role string

// The roles. Every measurement has exactly one baseline or none.
const (
	Spec     Role = "speculation"
	Baseline Role = "baseline"
)

// Arm is one server under test.
type Arm struct {
	Name   string `json:"name"` // "speculation", "baseline", "steps=3"
	Role   Role   `json:"role"`
	URL    string `json:"url"`
	Steps  int    `json:"steps,omitempty"`    // of a sweep
	Launch string `json:"relaunch,omitempty"` // command that starts it, {steps} filled in; "" when it runs already
}

// Level is one load: a closed loop of Concurrency requests at once, or, when Rate is
// not 0, an open loop of Rate conversations a second whose starts are Poisson.
type Level struct {
	Concurrency int     `json:"concurrency,omitempty"`
	Rate        float64 `json:"rate,omitempty"`
}

// String is "concurrency 8" or "rate 2.5/s".
func (l Level) String() string {
	if l.Rate != 0 {
		return "rate " + strconv.FormatFloat(l.Rate, 'g', 4, 64) + "/s"
	}
	return fmt.Sprintf("concurrency %d", l.Concurrency)
}

// Plan is what is measured. It is the head of the journal, and a resumed measurement
// must have the same.
type Plan struct {
	Arms       []Arm            `json:"arms"`
	Levels     []Level          `json:"levels"`
	Prompts    []prompts.Prompt `json:"-"`
	WarmUp     []prompts.Prompt `json:"-"`
	PromptSet  string           `json:"prompt_set"`     // "built-in" or the file's name
	Digest     string           `json:"prompts_digest"` // of Prompts
	NumPrompts int              `json:"prompts"`
	Runs       int              `json:"runs"`
	WarmUpRuns int              `json:"warmup_runs"`
	Params     server.Params    `json:"params"`              // MaxTokens 0 is auto: decided after preflight and written with each pass
	Seed       uint64           `json:"seed"`                // of arrival times and of resampling
	KeepText   bool             `json:"keep_text,omitempty"` // answers go to the journal
	Command    string           `json:"command,omitempty"`
	Version    string           `json:"hsx,omitempty"`
}

// Key names one pass over the prompts: one arm, one level, one run.
type Key struct {
	Arm    string `json:"arm"`
	Level  Level  `json:"level"`
	Run    int    `json:"run"`              // counted from 1
	WarmUp bool   `json:"warmup,omitempty"` // results are kept, and used for nothing but checks
}

// Request is one finished request of a pass.
type Request struct {
	Key
	Prompt   string        `json:"prompt"`
	Turn     int           `json:"turn"`               // counted from 0
	Category string        `json:"category,omitempty"` // of the prompt
	Due      time.Duration `json:"due_ns"`             // since the pass began: when it was meant to be sent
	Sent     time.Duration `json:"sent_ns"`            // since the pass began
	Answer   string        `json:"answer,omitempty"`
	Thinking string        `json:"thinking,omitempty"`
	server.Outcome
}

// Latency is from when the request was due, or from when it was sent in a closed loop,
// to the end of the answer; attempts that failed are no part of it.
func (r *Request) Latency() time.Duration {
	d := r.Done
	if r.Level.Rate != 0 {
		d += r.Sent - r.Due - r.Waited
	}
	return d
}

// Truncated reports whether the answer was cut at the limit, whatever the server calls
// it: some say "stop".
func (r *Request) Truncated(maxTokens int) bool {
	return r.FinishReason == "length" || maxTokens > 0 && r.Tokens >= maxTokens
}

// Pass is one pass over the prompts.
type Pass struct {
	Key
	Began     time.Time       `json:"began"`
	Wall      time.Duration   `json:"wall_ns"` // from the first request due to the last done
	MaxTokens int             `json:"max_tokens"`
	Before    server.Snapshot `json:"before"`
	After     server.Snapshot `json:"after"`
	Complete  bool            `json:"complete"`          // every request was tried; only these count
	Stopped   string          `json:"stopped,omitempty"` // why it is not
	Requests  []Request       `json:"-"`
}

// ArmInfo is what preflight learned about an arm.
type ArmInfo struct {
	Arm  string      `json:"arm"`
	At   time.Time   `json:"at"`
	Info server.Info `json:"info"`
}

// End is how a measurement ended.
type End struct {
	At          time.Time `json:"at"`
	Interrupted bool      `json:"interrupted,omitempty"`
	Reason      string    `json:"reason,omitempty"` // why it ended early
}

// Log is a journal as it was read back.
type Log struct {
	Plan   Plan
	Began  time.Time
	Arms   []ArmInfo // the last of each name counts
	Passes []Pass
	Events []string
	End    *End // nil: killed
	Torn   bool // the last line was cut by a kill
}
