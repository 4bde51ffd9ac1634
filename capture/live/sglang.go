package live

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"

	"hsx/format"
	"hsx/format/producer"
	"hsx/format/sglang"
)

// sglang has an SGLang server run one prompt and takes the states in its answer. The
// answer names no tokens, so the ids have to be the prompt's own.
func (c *capturer) sglang(ctx context.Context, p *Prompt) error {
	if p.InputIDs == nil {
		return errors.New("prompt has messages, want input_ids: SGLang's answers do not say which tokens their rows are of")
	}
	data, err := c.do(ctx, http.MethodPost, "/generate", map[string]any{
		"input_ids": p.InputIDs, "return_hidden_states": true,
		"sampling_params": map[string]any{"max_new_tokens": 1, "temperature": 0},
	}, maxStates)
	if err != nil {
		return err
	}
	answers, err := sglang.DecodeResponses(data)
	if err != nil {
		return &contentError{err}
	}
	if len(answers) != 1 {
		return &contentError{fmt.Errorf("%d answers to one prompt", len(answers))}
	}
	a := answers[0]
	rows := int(a.States.Shape[0])
	switch {
	case a.PromptTokens > 0 && a.PromptTokens != len(p.InputIDs):
		return &contentError{fmt.Errorf("answer counts %d prompt tokens, want the %d that were sent", a.PromptTokens, len(p.InputIDs))}
	case a.CachedTokens > 0:
		return &contentError{fmt.Errorf("%d tokens came from the server's cache, which has no states: start it with --disable-radix-cache", a.CachedTokens)}
	case rows != len(p.InputIDs):
		return &contentError{fmt.Errorf("answer has %d rows for %d tokens", rows, len(p.InputIDs))}
	}
	raw := make([]byte, 0, 8*rows)
	for _, id := range p.InputIDs {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
	}
	facts := c.opt.Facts
	facts.Producer = cmp.Or(facts.Producer, "sglang")
	m, err := producer.Recognise(producer.Dump{Container: producer.JSON, Value: &format.Record{Fields: []format.Field{
		{Key: "input_ids", Value: &format.Tensor{Name: "input_ids", DType: format.Int64, Shape: []int64{int64(rows)}, Data: raw}},
		{Key: "hidden_states", Value: a.States},
	}}}, facts)
	if err != nil {
		return &contentError{err}
	}
	sink := &answer{c: c, prompt: p, ids: p.InputIDs}
	for s, err := range m.Samples() {
		if err != nil {
			return &contentError{err}
		}
		switch err := sink.Put(ctx, s); {
		case errors.Is(err, format.ErrRefused):
			return &contentError{err}
		case err != nil && !errors.Is(err, format.ErrKnown):
			return &fatalError{err}
		}
	}
	return nil
}
