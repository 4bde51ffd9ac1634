package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"hsx/format"
)

// The engines that keep hidden states for their clients.
const (
	VLLM   = "vllm"
	SGLang = "sglang"
)

// Info is what a server says of itself.
type Info struct {
	Engine  string `json:"engine"` // VLLM or SGLang
	Version string `json:"version"`
	Model   string `json:"model"`
	// Notes are settings that cut the states of other versions, and why they do not here,
	// or which of them could not be seen.
	Notes []string `json:"notes"`
}

// Preflight asks a server what it is, and refuses one whose settings would cut the
// states of a prompt. What it cannot see is checked on every answer: there is a row for
// each token.
func Preflight(ctx context.Context, opt Options) (*Info, error) {
	c := &client{opt.withDefaults()}
	if err := c.alive(ctx); err != nil {
		return nil, fmt.Errorf("reach the server: %w", err)
	}
	info := &Info{Engine: opt.Engine, Notes: []string{}}
	args := c.sglangArguments(ctx)
	if info.Engine == "" {
		if args != nil {
			info.Engine = SGLang
		} else if info.Version = c.version(ctx); info.Version != "" {
			info.Engine = VLLM
		}
	}
	switch info.Engine {
	case VLLM:
		return info, c.preflightVLLM(ctx, info)
	case SGLang:
		return info, preflightSGLang(info, args, opt.Model)
	case "":
		return nil, errors.New("server is neither vLLM (no /version) nor SGLang (no /server_info)")
	}
	return nil, fmt.Errorf("engine %q is not known, want %s or %s", info.Engine, VLLM, SGLang)
}

func (c *client) version(ctx context.Context) string {
	var v struct {
		Version string `json:"version"`
	}
	c.get(ctx, "/version", &v)
	return v.Version
}

// preflightVLLM refuses prefix caching where it cuts states. Since version 0.32 (which
// was measured) states lie in the cache beside keys and values, so that a cached prefix
// and a prompt in chunks have theirs; before, a file held the rest of the prompt only.
func (c *client) preflightVLLM(ctx context.Context, info *Info) error {
	info.Version = c.version(ctx)
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	c.get(ctx, "/v1/models", &models)
	var names []string
	for _, m := range models.Data {
		names = append(names, m.ID)
	}
	switch {
	case c.opt.Model == "" && len(names) == 0:
		return errors.New("server lists no model at /v1/models")
	case c.opt.Model == "":
		info.Model = names[0]
	case len(names) > 0 && !slices.Contains(names, c.opt.Model):
		return fmt.Errorf("server has no model %q, it lists %q", c.opt.Model, names)
	default:
		info.Model = c.opt.Model
	}
	settings, err := c.do(ctx, http.MethodGet, "/metrics", nil, maxDocument)
	caching := ""
	if m := regexp.MustCompile(`(?m)^vllm:cache_config_info\{[^\n]*enable_prefix_caching="(\w+)"`).FindSubmatch(settings); err == nil && m != nil {
		caching = string(m[1])
	}
	switch {
	case caching == "":
		info.Notes = append(info.Notes, "/metrics does not say whether prefixes are cached")
	case caching == "False":
	case !atLeast(info.Version, 0, 32):
		return fmt.Errorf("prefix caching is on, and vLLM %s cuts the states of cached prefixes: start it with --no-enable-prefix-caching and --no-enable-chunked-prefill", info.Version)
	default:
		info.Notes = append(info.Notes, "prefix caching is on: vLLM keeps the states of cached prefixes since 0.32")
	}
	return nil
}

// atLeast compares a version such as 0.32.0rc1; one that is none is older than all.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// sglangArguments are those of an SGLang server, nil when this is none. They are at the
// top of the document or, by version, under server_args.
func (c *client) sglangArguments(ctx context.Context) map[string]any {
	for _, path := range []string{"/server_info", "/get_server_info"} {
		var doc map[string]any
		if !c.get(ctx, path, &doc) {
			continue
		}
		if inner, ok := doc["server_args"].(map[string]any); ok {
			inner["version"] = doc["version"]
			doc = inner
		}
		if doc["disable_radix_cache"] != nil || doc["chunked_prefill_size"] != nil {
			return doc
		}
	}
	return nil
}

func preflightSGLang(info *Info, args map[string]any, model string) error {
	info.Model = model
	if args == nil {
		info.Notes = append(info.Notes, "server does not tell its arguments, so its caching and chunks cannot be seen")
		return nil
	}
	info.Version, _ = args["version"].(string)
	for _, key := range []string{"served_model_name", "model_path"} {
		if name, ok := args[key].(string); ok && info.Model == "" {
			info.Model = name
		}
	}
	if on, ok := args["enable_return_hidden_states"].(bool); ok && !on {
		return errors.New("server keeps no hidden states: start it with --enable-return-hidden-states")
	}
	if off, ok := args["disable_radix_cache"].(bool); ok && !off {
		return errors.New("radix cache is on, and cached prefixes have no states: start the server with --disable-radix-cache")
	}
	if size, ok := args["chunked_prefill_size"].(float64); ok && size > 0 {
		return fmt.Errorf("chunked prefill is on (%d tokens), and its chunks cut the states: start the server with --chunked-prefill-size -1", int(size))
	}
	return nil
}

// ServerLayers finds the layers that a vLLM server stores in text that holds its
// arguments: its start script or its log. vLLM counts in the boundary convention and
// stores ascending whatever the list says. nil means that the text names none.
func ServerLayers(text []byte) (format.Layers, error) {
	var found format.Layers
	for _, m := range regexp.MustCompile(`eagle_aux_hidden_state_layer_ids\W{1,6}\[([\d, ]+)\]`).FindAllSubmatch(text, -1) {
		var ids []int
		if err := json.Unmarshal([]byte("["+string(m[1])+"]"), &ids); err != nil {
			return nil, fmt.Errorf("read eagle_aux_hidden_state_layer_ids: %w", err)
		}
		slices.Sort(ids)
		layers, err := format.NewLayers(ids, format.Boundary)
		if err != nil {
			return nil, err
		}
		if found != nil && !slices.Equal(found, layers) {
			return nil, fmt.Errorf("text names two lists of layers, %s and %s", found, layers)
		}
		found = layers
	}
	return found, nil
}
