package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// card is one entry of /v1/models, with what the engines add to it.
type card struct {
	ID          string   `json:"id"`
	OwnedBy     string   `json:"owned_by"`
	Root        string   `json:"root"`
	Aliases     []string `json:"aliases"`
	MaxModelLen int      `json:"max_model_len"`
	Meta        struct {
		Context int `json:"n_ctx"`
	} `json:"meta"`
}

// evidence is what a server says of itself, nil where it does not.
type evidence struct {
	models  []card
	sglang  *sglangInfo
	props   *llamaProps
	slots   []llamaSlot
	version string
	samples []sample // of /metrics
	counts  Snapshot
}

// llamaProps is what is read of llama.cpp's /props.
type llamaProps struct {
	Settings *struct {
		Params  map[string]any `json:"params"`
		Context int            `json:"n_ctx"`
	} `json:"default_generation_settings"`
	Slots    int    `json:"total_slots"`
	Path     string `json:"model_path"`
	Format   string `json:"model_ftype"`
	Template string `json:"chat_template"`
	Build    string `json:"build_info"`
}

// llamaSlot is what is read of one entry of llama.cpp's /slots.
type llamaSlot struct {
	Speculative *bool          `json:"speculative"`
	Params      map[string]any `json:"params"`
}

// healthy asks whether the server is up and lets us in. Not every server has the route.
func (c *Client) healthy(ctx context.Context) error {
	body, status, err := c.get(ctx, c.at("/health"), 1<<16)
	if err != nil {
		return err
	}
	if err := refused("/health", status); err != nil {
		return err
	}
	if status >= 500 && status != http.StatusNotImplemented {
		return fmt.Errorf("%s is not ready: /health: HTTP %d %s", c, status, c.scrub(serverMessage(body)))
	}
	return nil
}

// refused says what to do about a status that asks for a key.
func refused(path string, status int) error {
	if status != http.StatusUnauthorized && status != http.StatusForbidden {
		return nil
	}
	return fmt.Errorf("%s: HTTP %d: the key is missing or wrong: name the variable that holds it with --api-key-env", path, status)
}

// listed reads /v1/models.
func (c *Client) listed(ctx context.Context) ([]card, error) {
	body, status, err := c.get(ctx, c.at("/v1/models"), 4<<20)
	if err != nil {
		return nil, err
	}
	if err := refused("/v1/models", status); err != nil {
		return nil, err
	}
	var list struct {
		Data []card `json:"data"`
	}
	if status == http.StatusOK {
		_ = json.Unmarshal(body, &list) // a member of another type than usual is left out
		return list.Data, nil
	}
	if status >= 500 && status != http.StatusNotImplemented {
		return nil, fmt.Errorf("%s is not ready: /v1/models: HTTP %d %s", c, status, c.scrub(serverMessage(body)))
	}
	return nil, nil
}

// gather asks every route by which an engine shows itself. A route that is not there is
// an answer too.
func (c *Client) gather(ctx context.Context, e *evidence) {
	if info, err := c.serverInfo(ctx); err == nil {
		e.sglang = info
	}
	e.counts = c.Counters(ctx)
	if e.counts.Source == iterationSource { // only the next list tells what it is busy with
		e.counts = c.Counters(ctx)
	}
	e.samples = c.samples(ctx, e.counts.Source)
	var version struct {
		Version string `json:"version"`
	}
	c.document(ctx, "/version", &version)
	e.version = printable(version.Version, 80)
	if e.sglang == nil {
		c.document(ctx, "/props", &e.props)
	}
	if e.props != nil && e.props.Settings == nil {
		e.props = nil // another server's
	}
}

// samples are those of the last metrics that were read. TensorRT-LLM's list has none,
// and what configures it is beside.
func (c *Client) samples(ctx context.Context, source string) []sample {
	if source == iterationSource {
		body, status, err := c.get(ctx, c.at("/prometheus/metrics"), metricsLimit)
		if err != nil || status != http.StatusOK {
			return nil
		}
		samples, _ := parseProm(body) // a bad line costs itself
		return samples
	}
	c.meter.mu.Lock()
	defer c.meter.mu.Unlock()
	return c.meter.last
}

// document reads JSON into v and leaves v alone when there is none.
func (c *Client) document(ctx context.Context, path string, v any) {
	body, status, err := c.get(ctx, c.at(path), 4<<20)
	if err == nil && status == http.StatusOK {
		_ = json.Unmarshal(body, v) // what did not fit stays unknown
	}
}

// recognise tells the engine and by what. Its own routes say more than metrics, which
// a router may pass on, and both more than a name.
func (e *evidence) recognise() (Engine, string) {
	if e.sglang != nil {
		return SGLang, "/server_info"
	}
	if e.props != nil {
		return LlamaCpp, "/props"
	}
	if engine, _, found := strings.Cut(e.counts.Source, " "); found {
		return Engine(engine), "its metrics"
	}
	for _, m := range e.models {
		by := fmt.Sprintf("owned_by %q in /v1/models", printable(m.OwnedBy, 40))
		switch m.OwnedBy {
		case "vllm":
			return VLLM, by
		case "sglang":
			return SGLang, by
		case "llamacpp":
			return LlamaCpp, by
		case "tensorrt_llm":
			return TRTLLM, by
		}
	}
	return OpenAI, "no route of a known engine"
}

// arguments are what the server tells of how it was started.
func (e *evidence) arguments(model string) map[string]string {
	args := map[string]string{}
	if e.sglang != nil {
		flatten(args, "", e.sglang.arguments, 0)
	}
	if e.props != nil {
		flatten(args, "", map[string]any{
			"total_slots": e.props.Slots, "model_path": e.props.Path, "model_ftype": e.props.Format,
			"n_ctx": e.props.Settings.Context,
		}, 0)
		for name, value := range e.props.Settings.Params {
			if strings.HasPrefix(name, "speculative.") && name != "speculative.types" { // "none" whatever runs
				flatten(args, name, value, 0)
			}
		}
	}
	for _, s := range e.samples { // vLLM and TensorRT-LLM put their configuration into labels
		if _, name, _ := strings.Cut(s.name, "_"); strings.HasSuffix(name, "config_info") {
			for label, value := range s.labels {
				if label != "engine" && label != "model_name" && label != "engine_type" {
					flatten(args, strings.TrimSuffix(name, "_info")+"."+label, value, 0)
				}
			}
		}
	}
	if m := e.card(model); m != nil && m.Root != "" && m.Root != model {
		flatten(args, "root", m.Root, 0)
	}
	return args
}

// card is the entry of a model, by its name or an alias.
func (e *evidence) card(model string) *card {
	for i, m := range e.models {
		if m.ID == model || slices.Contains(m.Aliases, model) {
			return &e.models[i]
		}
	}
	return nil
}

// context is how many tokens a prompt and its answer may have, 0 unknown.
func (e *evidence) context(model string) int {
	if e.props != nil && e.props.Settings.Context > 0 {
		return e.props.Settings.Context // of one slot
	}
	if m := e.card(model); m != nil {
		return max(m.MaxModelLen, m.Meta.Context, 0)
	}
	if e.sglang != nil {
		return e.sglang.count("context_length")
	}
	return 0
}
