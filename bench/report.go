package bench

import (
	"time"

	"hsx/bench/server"
	"hsx/bench/stats"
)

// ReportVersion is that of the JSON document.
const ReportVersion = 1

// Outcome is the verdict in a word.
type Outcome string

// The outcomes. [Measured] is that of a measurement without a baseline.
const (
	Faster       Outcome = "faster" // the first of two stored measurements
	Slower       Outcome = "slower"
	Pays         Outcome = "pays"
	DoesNotPay   Outcome = "does not pay"
	Inconclusive Outcome = "inconclusive"
	Void         Outcome = "void"
	Measured     Outcome = "measured"
)

// Judgement is by what a log is judged. The zero value gives the defaults.
type Judgement struct {
	Margin       float64  // a gain must exceed it; 0 is 0.03
	Confidence   float64  // of intervals; 0 is 0.95
	MaxTruncated float64  // share of answers cut above which there is no verdict; 0 is 0.2
	MaxFailed    float64  // share of failed requests above which there is no verdict; 0 is 0.05
	Promise      *Promise // nil when none was made
	Baseline     *Log     // an earlier measurement whose baseline arm stands in for one here
	Mismatch     []string // what the resolver found against data or draft: first in the diagnosis
	Gate         *Gate    // nil: the verdict is text only
}

// Gate is what must hold for exit 0. A zero member is not asked for; with both zero
// speculation must pay.
type Gate struct {
	MinSpeedup      float64 `json:"min_speedup,omitempty"`
	MinAcceptLength float64 `json:"min_accept_length,omitempty"`
}

// Report is everything that a log says. It is the JSON document of hsx bench.
type Report struct {
	Version     int               `json:"report_version"`
	Verdict     Verdict           `json:"verdict"`
	Gate        *GateResult       `json:"gate,omitempty"`
	Levels      []LevelReport     `json:"levels"`
	Accept      []AcceptReport    `json:"accept_lengths"` // one for each arm that speculates, over its loads
	Promise     *PromiseReport    `json:"promise,omitempty"`
	Diagnosis   []Finding         `json:"diagnosis"` // most telling first
	Validity    []ValidityReport  `json:"validity"`  // one for each arm
	Sweep       *SweepReport      `json:"sweep,omitempty"`
	Differences []Difference      `json:"argument_differences,omitempty"` // between the first speculating arm and the baseline
	Arms        []ArmInfo         `json:"arms"`
	Plan        Plan              `json:"plan"`
	Began       time.Time         `json:"began"`
	Ended       time.Time         `json:"ended"`
	Interrupted string            `json:"interrupted,omitempty"` // why not everything was measured
	Events      []string          `json:"events,omitempty"`
	Definitions map[string]string `json:"definitions"` // what each figure means
}

// Verdict is the answer to the question, first in every form of the report.
type Verdict struct {
	Outcome  Outcome  `json:"outcome"`            // over all levels: of the first level, or void
	Sentence string   `json:"sentence"`           // "Speculation pays: 1.31× (95 % CI 1.27–1.35) at concurrency 1; …"
	Void     []string `json:"void,omitempty"`     // why there is none
	Warnings []string `json:"warnings,omitempty"` // what it has to be read with
}

// GateResult is what became of a gate.
type GateResult struct {
	Gate
	Outcome string   `json:"outcome"` // met, not met, inconclusive, void
	Reasons []string `json:"reasons"`
}

// LevelReport compares the arms under one load.
type LevelReport struct {
	Level    Level        `json:"level"`
	Arms     []ArmReport  `json:"arms"`
	Compared []Comparison `json:"compared,omitempty"` // each speculating arm with the baseline
}

// ArmReport is what one arm did under one load.
type ArmReport struct {
	Arm        string         `json:"arm"`
	Runs       int            `json:"runs"`     // complete ones
	Requests   int            `json:"requests"` // of complete runs
	Failed     int            `json:"failed"`
	Tokens     int64          `json:"completion_tokens"`
	Throughput stats.Estimate `json:"tokens_per_second"` // Σ tokens / wall of each run: geometric mean, t over runs
	ByRun      []float64      `json:"tokens_per_second_by_run"`
	ByRunTimes []time.Time    `json:"run_began"`
	CV         float64        `json:"run_cv"`                    // of ByRun
	Spread     string         `json:"spread,omitempty"`          // CV in a word: excellent, good, fair, bad; "" for one run
	Request    stats.Summary  `json:"request_tokens_per_second"` // tokens / latency of each request
	Decode     stats.Summary  `json:"decode_tokens_per_second"`  // (n−1)/(last−first) of each request
	TTFT       stats.Summary  `json:"ttft_seconds"`
	TTFOT      stats.Summary  `json:"ttfot_seconds"` // first token of the answer, after the thinking
	ITL        stats.Summary  `json:"itl_seconds"`   // between tokens: (last−first)/(n−1) of each request
	ICL        stats.Summary  `json:"icl_seconds"`   // between chunks, pooled
	E2E        stats.Summary  `json:"e2e_seconds"`
	Delay      stats.Summary  `json:"due_to_sent_seconds"` // how late hsx itself sent
	Warm       string         `json:"warm_up,omitempty"`   // what the first run or a trend says
	Burst      string         `json:"bursts,omitempty"`    // why TTFT, ITL and Decode are not the server's
}

// Comparison holds a speculating arm against the baseline under one load.
type Comparison struct {
	Arm          string         `json:"arm"`
	Baseline     string         `json:"baseline"`
	Outcome      Outcome        `json:"outcome"`
	Speedup      stats.Estimate `json:"speedup"`           // on these prompts: over runs
	ByPrompt     stats.Estimate `json:"speedup_by_prompt"` // on prompts like these: over prompts
	Slower       int            `json:"prompts_slower"`
	Prompts      int            `json:"prompts"`
	Wilcoxon     float64        `json:"wilcoxon_p"`
	Paired       bool           `json:"paired"`                   // runs alternated between the arms
	Detectable   float64        `json:"detectable"`               // relative difference that these runs would have shown
	RunsToSettle int            `json:"runs_to_settle,omitempty"` // 0: settled, or out of reach
	AcceptLength float64        `json:"accept_length,omitempty"`
	BreakEven    float64        `json:"break_even_accept_length,omitempty"` // τ·B/S: also the cost of a step in plain steps
	AtPromise    float64        `json:"speedup_at_promise,omitempty"`
	EqualText    *float64       `json:"equal_text,omitempty"` // share of prompts with the same text in both arms; at temperature 0 only
	Notes        []string       `json:"notes,omitempty"`
}

// AcceptReport is what speculation reached on one arm.
type AcceptReport struct {
	Arm         string           `json:"arm"`
	Level       string           `json:"level,omitempty"`           // "" over all
	Pooled      stats.Estimate   `json:"pooled"`                    // 1 + Σ accepted / Σ steps, bootstrap over prompts
	Macro       stats.Estimate   `json:"macro"`                     // mean over prompts
	Rate        float64          `json:"acceptance_rate,omitempty"` // accepted / drafted
	Steps       float64          `json:"verify_steps"`
	Drafted     float64          `json:"draft_tokens"`
	Accepted    float64          `json:"accepted_drafts"`
	PerStep     float64          `json:"drafted_per_step,omitempty"` // how many positions really ran
	Joint       []float64        `json:"joint,omitempty"`            // p_k: position k and all before it accepted
	Conditional []float64        `json:"conditional,omitempty"`      // c_k = p_k/p_{k-1}
	Source      string           `json:"source"`
	Trust       server.Trust     `json:"trust"`
	Others      []OtherSource    `json:"other_sources,omitempty"`
	ByLength    []LengthBucket   `json:"by_output_length,omitempty"`
	ByCategory  []CategoryAccept `json:"by_category,omitempty"`
	Notes       []string         `json:"notes,omitempty"`
}

// OtherSource is a second opinion on the accept length.
type OtherSource struct {
	Source string       `json:"source"`
	Trust  server.Trust `json:"trust"`
	Value  float64      `json:"accept_length"`
}

// LengthBucket is the accept length of answers of more than From tokens, up to To. Runs of
// one question count as one answer, of their mean length.
type LengthBucket struct {
	From   int     `json:"from_tokens"`
	To     int     `json:"to_tokens"` // 0: no end
	N      int     `json:"requests"`
	Accept float64 `json:"accept_length"`
}

// CategoryAccept is the accept length of one category of prompts.
type CategoryAccept struct {
	Category string  `json:"category"`
	N        int     `json:"requests"`
	Accept   float64 `json:"accept_length"`
}

// Promise is an accept length that training promised.
type Promise struct {
	Given         float64   // as it was written
	Positions     []float64 // conditional acceptance of each position, when the log has them
	ExcludesBonus *bool     // nil: not said, taken from the form of the file, or from what is possible
	Source        string    // "--promised 2.95" or the file
	Form          string    // specforge, speculators, torchspec, number
	Note          string    // which line or epoch was taken
}

// PromiseReport holds the promise against what was measured, in one definition.
type PromiseReport struct {
	Given       float64        `json:"given"`
	Source      string         `json:"source"`
	Includes    bool           `json:"given_includes_bonus"`
	Why         string         `json:"convention_by"` // how it is known whether the bonus token is in it
	Steps       int            `json:"steps_served"`
	Promised    float64        `json:"promised_accept_length"` // τ at the steps served, bonus included
	Cut         bool           `json:"cut_to_steps"`           // false when the steps served are not known
	Estimated   bool           `json:"estimated,omitempty"`    // cut by one acceptance for all positions: the promise has none
	Alternative float64        `json:"if_other_convention,omitempty"`
	Measured    stats.Estimate `json:"measured_accept_length"`
	Gap         float64        `json:"gap"`     // measured − promised
	Outcome     string         `json:"outcome"` // kept, broken, exceeded, not comparable
	Positions   []PositionGap  `json:"positions,omitempty"`
	Parts       int            `json:"parts_at,omitempty"` // first position, counted from 1, at which they part
	Meaning     string         `json:"meaning,omitempty"`
}

// PositionGap is one draft position, promised and measured, conditional on the one before.
type PositionGap struct {
	Position int     `json:"position"` // from 1
	Promised float64 `json:"promised"`
	Measured float64 `json:"measured"`
}

// Finding is one line of the diagnosis.
type Finding struct {
	Rule    string `json:"rule"` // stable name
	Message string `json:"message"`
	Do      string `json:"do,omitempty"`
}

// ValidityReport is whether an arm's figures can be trusted.
type ValidityReport struct {
	Arm         string         `json:"arm"`
	Requests    int            `json:"requests"`
	Truncated   float64        `json:"truncated"` // share of good answers cut at the limit
	MaxTokens   int            `json:"max_tokens"`
	Needed      int            `json:"max_tokens_to_use,omitempty"` // when too many were cut
	Failed      int            `json:"failed"`
	Faults      map[string]int `json:"faults,omitempty"` // failed requests by kind
	Errors      []string       `json:"errors,omitempty"` // distinct, the first 10
	Retries     int            `json:"retries"`          // outside every latency
	NoUsage     int            `json:"without_usage"`
	Foreign     *float64       `json:"foreign_tokens,omitempty"` // share of the server's tokens that are not ours
	Restarted   bool           `json:"restarted"`
	Loops       float64        `json:"repetition"` // share of answers that loop
	Synthetic   string         `json:"synthetic_acceptance,omitempty"`
	OutputRatio float64        `json:"output_ratio,omitempty"` // tokens of this arm / of the baseline, same prompts
	WasBusy     bool           `json:"was_busy"`               // at preflight
	Thinking    bool           `json:"thinks"`
	Doubts      []string       `json:"doubts,omitempty"`
}

// SweepReport is the curve over speculative steps.
type SweepReport struct {
	Points      []SweepPoint `json:"points"`
	Best        int          `json:"best_steps"`
	Certain     bool         `json:"certain"` // the best is distinguishable from the second
	Sentence    string       `json:"sentence"`
	StepSeconds []float64    `json:"step_seconds,omitempty"` // verify, and each draft position: fitted
}

// SweepPoint is one number of steps, measured or predicted.
type SweepPoint struct {
	Steps      int             `json:"steps"`
	Predicted  bool            `json:"predicted,omitempty"`
	Throughput stats.Estimate  `json:"tokens_per_second"`
	Speedup    *stats.Estimate `json:"speedup,omitempty"`
	Accept     float64         `json:"accept_length,omitempty"`
	Outcome    Outcome         `json:"outcome,omitempty"`
}

// Difference is one server argument that is not the same in two arms.
type Difference struct {
	Argument string `json:"argument"`
	Spec     string `json:"speculation"`
	Baseline string `json:"baseline"`
	Matters  string `json:"matters,omitempty"` // why it may explain a difference in speed, "" for speculation's own
}
