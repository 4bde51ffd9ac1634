// Package server speaks to one inference server: it finds out what runs there, sends
// one streamed request and measures it, and reads the counters of speculation in the
// dialect of each engine. It judges nothing and repeats nothing.
package server

import (
	"net/http"
	"time"
)

// Engine is the program that serves.
type Engine string

// The engines whose dialects are known. [OpenAI] is any other with the OpenAI routes.
const (
	SGLang   Engine = "sglang"
	VLLM     Engine = "vllm"
	LlamaCpp Engine = "llama.cpp"
	TRTLLM   Engine = "tensorrt-llm"
	OpenAI   Engine = "openai-compatible"
)

// API is the route that requests take.
type API string

// The routes. [APIAuto] is chat, or SGLang's own where that tells more.
const (
	APIAuto        API = "auto"
	APIChat        API = "chat"        // POST /v1/chat/completions
	APICompletions API = "completions" // POST /v1/completions, without a chat template
	APISGLang      API = "sglang"      // POST /generate
)

// Options say where a server is and how it is reached. Only URL must be set.
type Options struct {
	URL         string   // root of the server; a trailing /v1 is taken off
	MetricsURLs []string // where counters are, when not at URL; several are added up
	API         API      // "" is [APIAuto]
	Model       string   // as the server names it; "" is the first that it lists
	LogFile     string   // the server's own log, the last resort for accept lengths; SGLang's form

	Header   http.Header // sent with every request, to MetricsURLs too
	Key      string      // sent as a bearer token; never part of an error, a log or a result
	CACert   string      // file of PEM certificates that are trusted beside the system's
	Insecure bool        // do not verify the server's certificate

	Timeout     time.Duration // for one whole request; 0 is 30 minutes
	IdleTimeout time.Duration // without a byte while an answer is awaited or streams; 0 is 2 minutes
	Retries     int           // after 429, 5xx and refused connections, before the first byte; 0 is 3, negative is none
	Connections int           // kept open; at least the requests at once
}

// Message is one message of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Params are how an answer is sampled. Both arms of a comparison get the same.
type Params struct {
	MaxTokens   int            `json:"max_tokens"`
	Temperature float64        `json:"temperature"`
	TopP        float64        `json:"top_p,omitempty"` // 0 is not sent
	Seed        *int64         `json:"seed,omitempty"`
	IgnoreEOS   bool           `json:"ignore_eos,omitempty"`
	Thinking    string         `json:"thinking,omitempty"` // on, off, or "" for the template's default
	Extra       map[string]any `json:"extra,omitempty"`    // further members of the request's body
}

// Request is one answer that is asked for.
type Request struct {
	Messages []Message
	Params   Params
}

// Outcome is one finished request, good or bad. Offsets count from when the attempt
// that was answered was sent, on the monotonic clock; before an offset is known it is 0.
type Outcome struct {
	Sent     time.Time     `json:"sent"`
	Attempts int           `json:"attempts"`           // 1 when the first was taken
	Waited   time.Duration `json:"waited_ns"`          // lost to attempts that failed; no part of any latency
	Retried  []string      `json:"retried,omitempty"`  // why, one for each failed attempt
	Redirect string        `json:"redirect,omitempty"` // where the request ended, when not at the URL

	FirstChunk  time.Duration `json:"first_chunk_ns"`  // first event of any kind, a role-only one too
	FirstToken  time.Duration `json:"first_token_ns"`  // first event that carried text, of the thinking or the answer
	FirstAnswer time.Duration `json:"first_answer_ns"` // first event that carried text of the answer
	LastToken   time.Duration `json:"last_token_ns"`
	Done        time.Duration `json:"done_ns"` // end of the stream, or of the failure

	Status int    `json:"status"` // of the last attempt, 0 without an answer
	Fault  Fault  `json:"fault,omitempty"`
	Error  string `json:"error,omitempty"` // one sentence; empty for a good request

	Usage           bool     `json:"usage"` // the server gave usage; without it the counts are 0
	Continuous      bool     `json:"continuous,omitempty"`
	PromptTokens    int      `json:"prompt_tokens"`
	CachedTokens    int      `json:"cached_tokens,omitempty"`
	Tokens          int      `json:"completion_tokens"`          // from usage, never from chunks
	ReasoningTokens int      `json:"reasoning_tokens,omitempty"` // as the server says; can be wrong, see Doubts
	FinishReason    string   `json:"finish_reason,omitempty"`
	Doubts          []string `json:"doubts,omitempty"` // what contradicts itself in the answer

	GapsUS      []int   `json:"gaps_us,omitempty"`      // microseconds between consecutive chunks with text
	ChunkTokens []int   `json:"chunk_tokens,omitempty"` // tokens of each chunk with text, where usage is continuous
	Accept      *Accept `json:"accept,omitempty"`       // of this request alone, where the server says

	Text       string  `json:"-"` // the answer without its thinking: the next turn needs it
	Reasoning  string  `json:"-"`
	TextDigest string  `json:"text_digest,omitempty"` // of thinking and answer
	TextBytes  int     `json:"text_bytes"`            // of both
	Distinct4  float64 `json:"distinct4"`             // distinct 4-grams of words / all of them: near 0 is a loop; 1 for short texts
}

// Fault is the kind of failure of a request.
type Fault string

// The faults. A good request has [FaultNone].
const (
	FaultNone      Fault = ""
	FaultRefused   Fault = "refused"     // 4xx but 429: the request itself is wrong
	FaultBusy      Fault = "busy"        // 429 or 5xx to the end of the retries
	FaultTransport Fault = "transport"   // no connection, TLS, DNS
	FaultCut       Fault = "cut"         // the stream ended before the answer did
	FaultStalled   Fault = "stalled"     // nothing came for the idle timeout
	FaultTimeout   Fault = "timeout"     // longer than the whole timeout
	FaultProtocol  Fault = "protocol"    // what came is no answer: bad JSON, an error event, no choices
	FaultStopped   Fault = "interrupted" // by the caller
)

// Accept is what speculation did over some verify steps. τ = 1 + Accepted/Steps.
type Accept struct {
	Steps     float64   `json:"verify_steps"`
	Accepted  float64   `json:"accepted_drafts"`
	Drafted   float64   `json:"draft_tokens,omitempty"`        // 0 is unknown
	Positions []float64 `json:"accepted_at,omitempty"`         // accepted drafts at each position (joint), as long as is known
	Tokens    float64   `json:"tokens,omitempty"`              // that the steps and the prefill emitted, when known
	Approx    bool      `json:"approx,omitempty"`              // derived: steps or drafts are not counted by the server
	Source    string    `json:"source"`                        // such as "vllm metrics.speculative_decoding"
	PlainStep float64   `json:"steps_without_draft,omitempty"` // decode steps that drafted nothing and are not in Steps
}

// Info is what preflight learned about a server.
type Info struct {
	URL         string            `json:"url"`
	Engine      Engine            `json:"engine"`
	Why         string            `json:"engine_by"` // by what it was recognised
	Version     string            `json:"version,omitempty"`
	Model       string            `json:"model"`
	API         API               `json:"api"`
	MaxContext  int               `json:"max_context,omitempty"` // tokens, 0 unknown
	Speculation Speculation       `json:"speculation"`
	Arguments   map[string]string `json:"arguments,omitempty"` // of the server, as far as it tells; nested ones with dots, secrets left out
	Load        Load              `json:"load"`
	Sources     []Source          `json:"accept_sources"` // best first
	Thinks      bool              `json:"thinks"`
	ThinksBy    string            `json:"thinks_by,omitempty"` // template, first answer
	Probe       Outcome           `json:"probe"`
	Insecure    bool              `json:"insecure,omitempty"` // certificate not verified
	Notes       []string          `json:"notes,omitempty"`    // what a reader of the results has to know
}

// Speculation is how a server speculates, as it says itself and as the probe saw.
type Speculation struct {
	Known       bool   `json:"known"` // false: the server does not say
	On          bool   `json:"on"`
	Method      string `json:"method,omitempty"`       // eagle3, ngram, draft, mtp … as the server names it
	Draft       string `json:"draft,omitempty"`        // model or path
	Steps       int    `json:"steps,omitempty"`        // draft positions that run, 0 unknown
	TopK        int    `json:"top_k,omitempty"`        // 1 is a chain
	DraftTokens int    `json:"draft_tokens,omitempty"` // as SGLang counts: with the token that starts the tree
	AskedSteps  int    `json:"asked_steps,omitempty"`  // asked for where that differs from what runs
	AskedBy     string `json:"asked_by,omitempty"`     // the argument that asked
	Synthetic   string `json:"synthetic,omitempty"`    // the argument that fakes acceptance: voids every verdict
	Evidence    string `json:"evidence,omitempty"`     // where this was read
}

// Load is what a server is busy with.
type Load struct {
	Known   bool    `json:"known"`
	Running float64 `json:"running"`
	Waiting float64 `json:"waiting"`
}

// Trust says how far an accept length can be believed.
type Trust string

// The degrees of trust, best first.
const (
	Exact  Trust = "exact"       // per request
	Idle   Trust = "exact-idle"  // counters: exact when nobody else uses the server
	Approx Trust = "approximate" // lifetime averages after a flush, derived counts
	Proxy  Trust = "proxy"       // tokens per chunk
	Low    Trust = "low"         // last window's gauge, the log: no verdict against the promise
)

// Source is one place from which accept lengths come.
type Source struct {
	Name  string `json:"name"`
	Trust Trust  `json:"trust"`
	Why   string `json:"why"` // why it is offered, or what limits it
}

// Snapshot is a server's counters at one time, summed over its ranks. A nil number is
// not exposed: SGLang counts no accepted drafts, TensorRT-LLM not always steps. [Delta]
// derives them.
type Snapshot struct {
	At        time.Time `json:"at"`
	Steps     *float64  `json:"verify_steps,omitempty"`
	Accepted  *float64  `json:"accepted_drafts,omitempty"`
	Drafted   *float64  `json:"draft_tokens,omitempty"`
	Positions []float64 `json:"accepted_at,omitempty"`
	Generated *float64  `json:"generated_tokens,omitempty"`
	Finished  *float64  `json:"finished_requests,omitempty"`
	Started   *float64  `json:"process_start,omitempty"` // unix seconds: another one is another process
	Load      Load      `json:"load"`
	Window    *float64  `json:"window_accept_length,omitempty"`   // a gauge of the last log window: low trust
	Lifetime  *float64  `json:"lifetime_accept_length,omitempty"` // an average since the last flush
	LogSteps  *float64  `json:"log_steps,omitempty"`              // Σ requests running over the log's windows: weights, not steps
	LogTokens *float64  `json:"log_tokens,omitempty"`             // Σ the same × accept length
	Ranks     int       `json:"ranks,omitempty"`                  // data-parallel ranks that were added up
	Source    string    `json:"source,omitempty"`                 // of the counters; empty when they were not read
	Problems  []string  `json:"problems,omitempty"`               // what could not be read, and why
}
