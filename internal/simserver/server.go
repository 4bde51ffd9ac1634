// Package simserver is a simulated inference server with known speculation, speed and
// faults. It speaks the dialects of vLLM, SGLang, llama.cpp and TensorRT-LLM well
// enough for a benchmark to measure it, and knows the exact totals that a measurement
// has to find. It generates no language: answers are words drawn by the hash of the
// prompt.
package simserver

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The dialects that a server speaks.
const (
	VLLM     = "vllm"
	SGLang   = "sglang"
	LlamaCpp = "llama.cpp"
	TRTLLM   = "tensorrt-llm"
	OpenAI   = "openai" // nothing but the OpenAI routes: no metrics, no version
)

// Options say what is simulated. The zero value is a vLLM without speculation that
// answers at once.
type Options struct {
	Engine  string // dialect; "" is [VLLM], and so is one that is unknown
	Model   string // "" is "simulated"
	Version string // "" is one of the engine
	Seed    uint64 // the same seed and prompt give the same text and acceptance, whatever dialect, speed and steps
	Context int    // tokens of prompt and answer; 0 is 32768

	Steps      int       // draft positions that run; 0 is no speculation
	AskedSteps int       // what the arguments claim was asked for; 0 is what runs. SGLang shows it as speculative_num_draft_tokens
	Accept     []float64 // acceptance of each position given the one before it; the last is repeated, none is 0
	Reach      int       // tokens of an answer after which no draft is accepted, as beyond the positions a draft was trained on; 0 is no limit
	Undrafted  float64   // share of steps that draft nothing, as n-gram drafts have them

	Prefill time.Duration // to the first token
	Step    time.Duration // of one step of the target, plain or verifying
	Draft   time.Duration // of each draft position, in each step
	Crowd   time.Duration // added to a step for each token that other requests put through it: why speculation stops to pay under load
	Spread  float64       // σ of the lognormal noise of these times, drawn for each request and again for each phase, for other Steps anew
	Phase   int           // requests of a phase, after which the machine is a little faster or slower; 0 is 32
	Slots   int           // requests at once, others queue; 0 is no limit

	MinTokens   int  // of an answer with its end token; 0 is 16
	MaxTokens   int  // of an answer with its end token; 0 is MinTokens
	Think       int  // tokens of thinking before the answer, unless the request turns it off
	ThinkInline bool // thinking comes in the content, between <think> and </think>, as without a reasoning parser

	Ranks      int            // data-parallel ranks; 0 is 1. vLLM counts in each, SGLang has gauges of each, TensorRT-LLM repeats what the first counts
	Generation string         // of SGLang's meta_info, "A" to "E"; "" is "E"
	PerRequest bool           // acceptance in each answer: vLLM --per-request-spec-decode-metrics, SGLang sglext where it is asked for
	Arguments  map[string]any // further server arguments, where the engine shows any
	Key        string         // demanded as bearer token of every route but /health

	Faults Faults
	// Seen is called with each request for an answer and its body, before any fault.
	Seen func(r *http.Request, body []byte)
}

// Truth is what really happened, whatever the counters of the server show.
type Truth struct {
	Requests  int64   // answered to the end
	Tokens    int64   // emitted, those of broken answers too
	Steps     int64   // verify steps; without speculation 0
	Drafted   int64   // draft tokens
	Accepted  int64   // draft tokens that became part of an answer
	Positions []int64 // accepted drafts at each position
}

// Server is one simulated server. It is an [http.Handler], safe for concurrent use.
type Server struct {
	opt     Options
	dialect dialect
	mux     *http.ServeMux
	words   []string
	slots   chan struct{} // nil: no limit

	closed chan struct{} // ends stalled answers
	close  sync.Once
	dead   chan struct{} // as after a crash
	die    sync.Once

	mu      sync.Mutex
	asked   int64 // requests for an answer, faulty ones too
	started time.Time
	truth   Truth
	ranks   []counters
	running int
	waiting int
	windows []window // of each rank

	iterations []iteration // TensorRT-LLM: since they were last read
	iteration  int64       // number of the last that was read
}

// New returns a server that simulates o.
func New(o Options) *Server {
	defaults(&o)
	s := &Server{
		opt:     o,
		mux:     http.NewServeMux(),
		words:   strings.Fields(words),
		closed:  make(chan struct{}),
		dead:    make(chan struct{}),
		started: time.Now(),
		ranks:   make([]counters, o.Ranks),
		windows: make([]window, o.Ranks),
		truth:   Truth{Positions: make([]int64, o.Steps)},
	}
	for i := range s.ranks {
		s.ranks[i].positions = make([]int64, o.Steps)
	}
	if o.Slots > 0 {
		s.slots = make(chan struct{}, o.Slots)
	}
	s.dialect = dialectOf(o.Engine)
	s.routes()
	return s
}

func defaults(o *Options) {
	set := func(v *string, to string) {
		if *v == "" {
			*v = to
		}
	}
	least := func(v *int, to int) {
		if *v <= 0 {
			*v = to
		}
	}
	switch o.Engine {
	case SGLang, LlamaCpp, TRTLLM, OpenAI:
	default:
		o.Engine = VLLM
	}
	set(&o.Model, "simulated")
	set(&o.Generation, "E")
	set(&o.Version, dialectOf(o.Engine).version)
	least(&o.Context, 32768)
	least(&o.Phase, 32)
	least(&o.Ranks, 1)
	least(&o.MinTokens, 16)
	o.MaxTokens = max(o.MaxTokens, o.MinTokens)
	o.Steps = max(o.Steps, 0)
}

// Truth returns the exact totals so far.
func (s *Server) Truth() Truth {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.truth
	t.Positions = append([]int64(nil), t.Positions...)
	return t
}

// Close ends answers that stall. The server answers on as before.
func (s *Server) Close() {
	s.close.Do(func() { close(s.closed) })
}

// ServeHTTP answers as the engine would.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-s.dead:
		panic(http.ErrAbortHandler) // how net/http is told to drop the connection
	default:
	}
	if !s.allowed(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.refuse(w, refusal{http.StatusUnauthorized, "AuthenticationError", "", "Unauthorized"})
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) allowed(r *http.Request) bool {
	switch f := s.opt.Faults; {
	case r.URL.Path == "/health":
		return true
	case strings.HasSuffix(r.URL.Path, "/metrics") && f.MetricsAuth:
		return false
	case strings.HasSuffix(r.URL.Path, "/metrics") && f.MetricsOpen, s.opt.Key == "":
		return true
	}
	given := []byte(r.Header.Get("Authorization"))
	return subtle.ConstantTimeCompare(given, []byte("Bearer "+s.opt.Key)) == 1
}

// routes are those that all dialects share, and those of the one spoken.
func (s *Server) routes() {
	s.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.dialect.models(s))
	})
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, chat)
	})
	s.mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, completions)
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.refuse(w, refusal{http.StatusNotFound, "not_found_error", "", "Not Found"})
	})
	s.dialect.routes(s)
}

// enter takes a slot, and counts the request as running until leave is first called.
func (s *Server) enter(ctx context.Context) (leave func(), err error) {
	if s.slots != nil {
		s.gauge(0, 1)
		defer s.gauge(0, -1)
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.gauge(1, 0)
	var once sync.Once
	return func() {
		once.Do(func() {
			s.gauge(-1, 0)
			if s.slots != nil {
				<-s.slots
			}
		})
	}, nil
}

func (s *Server) gauge(running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += running
	s.waiting += waiting
}
