package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"hsx/capture"
	"hsx/format"
)

const lockSuffix = ".lock"

// vllmAnswer is what is read of an answer to a completion or a chat.
type vllmAnswer struct {
	PromptTokenIDs []int32 `json:"prompt_token_ids"` // of a chat
	Choices        []struct {
		PromptTokenIDs []int32 `json:"prompt_token_ids"` // of a completion
	} `json:"choices"`
	Usage struct {
		PromptTokens int `json:"prompt_tokens"`
	} `json:"usage"`
	Transfer struct {
		Path string `json:"hidden_states_path"`
	} `json:"kv_transfer_params"`
}

// vllm has a vLLM server run one prompt and takes the file that it wrote. One token is
// the least that can be asked for; streams and n > 1 would leave files that no answer
// names.
func (c *capturer) vllm(ctx context.Context, p *Prompt) error {
	body := map[string]any{"model": c.info.Model, "max_tokens": 1, "temperature": 0, "return_token_ids": true}
	path := "/v1/completions"
	if p.Messages != nil {
		path = "/v1/chat/completions"
		body["messages"] = p.Messages
		body["add_generation_prompt"] = !answered(p.Messages)
	} else {
		body["prompt"] = p.InputIDs
	}
	data, err := c.do(ctx, http.MethodPost, path, body, maxAnswer)
	if err != nil {
		return err
	}
	var a vllmAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a.Transfer.Path == "" {
		return &fatalError{errors.New("answer has no kv_transfer_params.hidden_states_path: the server does not run extract_hidden_states with a file connector")}
	}
	ids := p.InputIDs
	if ids == nil {
		ids = a.PromptTokenIDs
		if ids == nil && len(a.Choices) > 0 {
			ids = a.Choices[0].PromptTokenIDs
		}
	}
	if len(ids) == 0 || a.Usage.PromptTokens != len(ids) {
		return &contentError{fmt.Errorf("answer counts %d prompt tokens and names %d ids", a.Usage.PromptTokens, len(ids))}
	}
	return c.takeFile(ctx, p, ids, a.Transfer.Path)
}

// takeFile waits for the writer of a file and puts its sample.
func (c *capturer) takeFile(ctx context.Context, p *Prompt, ids []int32, path string) error {
	if !filepath.IsAbs(path) {
		if c.opt.Root == "" {
			return &fatalError{fmt.Errorf("server names the file %q relative to its own working directory: say which that is", path)}
		}
		path = filepath.Join(c.opt.Root, path)
	}
	// The lock is there and held before the answer comes. Without one nothing tells when
	// the file is whole.
	_, err := os.Lstat(path + lockSuffix)
	if errors.Is(err, os.ErrNotExist) {
		return &fatalError{fmt.Errorf("no lock beside %s: either the path is not of this machine, or the server writes without locks, and then nothing says when a file is whole", path)}
	}
	if err == nil {
		err = capture.WaitUnlocked(ctx, path, c.opt.LockTimeout)
	}
	if err != nil {
		return &contentError{err}
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &passing{err: fmt.Errorf("lock of %s is free and the file is not there: the server failed to write it", path)}
	case err != nil:
		return &contentError{err}
	case !info.Mode().IsRegular():
		return &contentError{fmt.Errorf("%s is no regular file", path)}
	}
	var refused *format.Rejection
	dir := filepath.Dir(path)
	facts := c.opt.Facts
	facts.Producer = cmp.Or(facts.Producer, "vllm")
	plan, err := capture.NewPlan(ctx, []string{path}, capture.Options{
		Facts: facts, Root: dir, Workers: 1, LockTimeout: c.opt.LockTimeout,
		Reject: func(r format.Rejection) error { refused = &r; return nil },
	})
	if err != nil {
		return &contentError{err}
	}
	_, err = plan.Run(ctx, &answer{c: c, prompt: p, ids: ids, file: &file{path, info.Size(), info.ModTime().UnixNano()}})
	if err == nil && refused != nil {
		return &contentError{fmt.Errorf("%s: %s", path, refused.Reason)}
	}
	if err != nil {
		return &fatalError{err}
	}
	return nil
}

// answer is the sink of one answer: it gives its sample the prompt's names and puts it.
type answer struct {
	c      *capturer
	prompt *Prompt
	ids    []int32
	file   *file // that holds it, nil when none does
}

// Put checks that a sample is the prompt's and hands it to the store.
func (a *answer) Put(ctx context.Context, s *format.Sample) error {
	if !slices.Equal(s.Tokens, a.ids) {
		return fmt.Errorf("its %d token ids are not the %d of the prompt: %w", len(s.Tokens), len(a.ids), format.ErrRefused)
	}
	s.ID, s.Input, s.Last = a.prompt.ID, a.prompt.Input(), true
	if a.prompt.LossMask != nil {
		s.LossMask = a.prompt.LossMask
	}
	return a.c.put(ctx, s, a.file)
}
