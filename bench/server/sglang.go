package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// sglangInfo is the payload of SGLang's /server_info.
type sglangInfo struct {
	arguments map[string]any   // of the server, what schedules and decodes
	states    []map[string]any // one for each data-parallel rank
}

// serverInfo reads /server_info, or the route's older name.
func (c *Client) serverInfo(ctx context.Context) (*sglangInfo, error) {
	const limit = 16 << 20
	for _, path := range []string{"/server_info", "/get_server_info"} {
		body, status, err := c.get(ctx, c.at(path), limit)
		if err != nil {
			return nil, err
		}
		if status != http.StatusOK {
			continue
		}
		if info, ok := parseServerInfo(body); ok {
			return info, nil
		}
	}
	return nil, fmt.Errorf("%s has no /server_info of SGLang", c)
}

// parseServerInfo tells SGLang's payload from those of others with the same route. The
// arguments are at its top, in older and newer forms under server_args, and where
// prefill and decode are apart under decode, which is where drafts are verified.
func parseServerInfo(body []byte) (*sglangInfo, bool) {
	top, err := decodeObject(body)
	if err != nil {
		return nil, false
	}
	info := &sglangInfo{arguments: map[string]any{}}
	layers := []map[string]any{top}
	if decode, ok := top["decode"].([]any); ok && len(decode) > 0 {
		if first, ok := decode[0].(map[string]any); ok {
			layers = append(layers, first)
		}
	}
	for _, layer := range layers {
		if args, ok := layer["server_args"].(map[string]any); ok {
			layers = append(layers, args)
		}
	}
	for _, layer := range layers {
		for name, value := range layer {
			if name == "internal_states" {
				info.addStates(value)
				continue
			}
			if !noise(name) {
				info.arguments[name] = value
			}
		}
	}
	_, speculates := info.arguments["speculative_algorithm"]
	_, scheduled := top["internal_states"]
	return info, speculates || scheduled
}

// addStates keeps the last states found: those of the decode server, if there is one.
func (i *sglangInfo) addStates(value any) {
	list, ok := value.([]any)
	if !ok {
		return
	}
	i.states = nil
	for _, item := range list {
		if state, ok := item.(map[string]any); ok {
			i.states = append(i.states, state)
		}
	}
}

// noise is what a payload holds beside arguments.
func noise(name string) bool {
	switch name {
	case "server_args", "prefill", "decode", "encode", "load", "last_gen_throughput", "memory_usage",
		"step_time_dict", "status", "pid", "nccl_port", "random_seed":
		return true
	}
	return false
}

// lifetime is the mean accept length since the last flush, of the ranks that say one.
// It has no denominator, so that ranks cannot be weighted.
func (i *sglangInfo) lifetime() *float64 {
	var values []float64
	for _, state := range i.states {
		for _, name := range []string{"avg_spec_accept_length", "spec_accept_length"} {
			if v, ok := number(state[name]); ok && v >= 1 {
				values = append(values, v)
				break
			}
		}
	}
	return average(values)
}

func (i *sglangInfo) text(name string) string {
	s, _ := i.arguments[name].(string)
	if strings.EqualFold(s, "none") {
		return ""
	}
	return printable(s, maxArgument)
}

func (i *sglangInfo) count(name string) int {
	v, ok := number(i.arguments[name])
	if !ok || v < 0 || v > 1e9 {
		return 0
	}
	return int(v)
}

func number(value any) (float64, bool) {
	n, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	v, err := n.Float64()
	return v, err == nil && finite(v)
}

// speculation is what the arguments ask for and, as far as they tell, what runs.
func (i *sglangInfo) speculation() Speculation {
	s := Speculation{
		Known:       true,
		Method:      strings.ToLower(i.text("speculative_algorithm")),
		Draft:       i.text("speculative_draft_model_path"),
		Steps:       i.count("speculative_num_steps"),
		TopK:        i.count("speculative_eagle_topk"),
		DraftTokens: i.count("speculative_num_draft_tokens"),
		Evidence:    "server arguments",
	}
	if s.Draft == "" {
		s.Draft = i.text("speculative_draft_model") // of some versions
	}
	if s.On = s.Method != ""; !s.On {
		return Speculation{Known: true, Evidence: s.Evidence}
	}
	switch {
	case s.chain():
		// A chain has as many draft tokens as steps, and the token that it starts from:
		// of more, none runs.
		if s.DraftTokens > s.Steps+1 {
			s.AskedSteps, s.AskedBy = s.DraftTokens-1, "speculative_num_draft_tokens"
			s.DraftTokens = s.Steps + 1
		}
	case s.Method == "dflash", s.Method == "dspark": // a block in one step: steps and top-k are 1 whatever runs
		s.Steps = max(s.DraftTokens-1, 0)
	case s.TopK <= 1: // n-grams and what is not known yet: their depth is not an argument
		s.Steps = 0
	}
	return s
}
