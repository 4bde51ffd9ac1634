package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/format/npy"
	"hsx/format/producer"
	"hsx/format/sglang"
)

// maxSideBytes bounds what is read of a small file beside a dump.
const maxSideBytes = 64 << 20

// readSide reads a file beside a dump; nil when there is none. Other programs use the
// same names for other things: a directory or a pipe is none either.
func readSide(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not block the open
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing can be lost
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSideBytes+1))
	if len(data) > maxSideBytes {
		return nil, tooLargeBeside(path, info.Size())
	}
	return data, err
}

// siblingCache reads the files beside dumps once for each directory of a run.
type siblingCache struct {
	mu   sync.Mutex
	dirs map[string]func() (producer.Siblings, error)
}

func (c *siblingCache) in(fs files, dir string) (producer.Siblings, error) {
	c.mu.Lock()
	if c.dirs == nil {
		c.dirs = map[string]func() (producer.Siblings, error){}
	}
	read := c.dirs[dir]
	if read == nil {
		read = sync.OnceValues(func() (producer.Siblings, error) { return siblings(fs, dir) })
		c.dirs[dir] = read
	}
	c.mu.Unlock()
	return read()
}

// siblings reads what producers say of their dumps in files beside them. A file of
// the same name that is not theirs says nothing.
func siblings(fs files, dir string) (producer.Siblings, error) {
	var s producer.Siblings
	config, err := fs.side(filepath.Join(dir, "data_config.json"))
	if err != nil {
		return s, err
	}
	manifest, err := fs.side(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return s, err
	}
	if c, err := producer.ParseV1Config(config); err == nil {
		s.V1 = c
	}
	if m, err := producer.ParseAutomodelManifest(manifest); err == nil {
		s.Automodel = m
	}
	return s, nil
}

// answerDumps gives each answer of a server the token ids of its rows: the prompt's
// from the request beside it, then the new ones, of which the last has no row.
func answerDumps(fs files, path string, answers []sglang.Response) ([]producer.Dump, error) {
	name, req, err := request(fs, path)
	if err != nil {
		return nil, err
	}
	if req.Text || len(req.InputIDs) != len(answers) {
		return nil, noTokens("%s holds the token ids of %d prompts, want those of %d answers (prompts sent as text have none)", name, len(req.InputIDs), len(answers))
	}
	dumps := make([]producer.Dump, len(answers))
	for i, a := range answers {
		prompt := req.InputIDs[i]
		ids := slices.Concat(prompt, a.OutputIDs)
		rows := int(a.States.Shape[0])
		if a.PromptTokens > 0 && a.PromptTokens != len(prompt) {
			return nil, noTokens("answer %d counts %d prompt tokens, %s has %d: they do not belong together", i, a.PromptTokens, name, len(prompt))
		}
		if least := max(len(prompt), len(ids)-1); rows < least || rows > len(ids) {
			return nil, noTokens("answer %d has %d rows for a prompt of %d tokens and %d new ones, want %d: rows that a cache dropped would shift all others", i, rows, len(prompt), len(a.OutputIDs), least)
		}
		raw := make([]byte, 0, 8*rows)
		for _, id := range ids[:rows] {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
		}
		dumps[i] = producer.Dump{Container: producer.JSON, Value: &format.Record{Fields: []format.Field{
			{Key: "input_ids", Value: &format.Tensor{Name: "input_ids", DType: format.Int64, Shape: []int64{int64(rows)}, Data: raw}},
			{Key: "hidden_states", Value: a.States},
		}}}
	}
	return dumps, nil
}

// requestName is what the request beside an answer is called; the same name when the
// answer's says nothing of it.
func requestName(answer string) string { return strings.Replace(answer, "response", "request", 1) }

// request reads the request beside an answer, compressed as the answer or not at all.
func request(fs files, path string) (name string, req *sglang.Request, err error) {
	dir, base := filepath.Split(path)
	name = requestName(base)
	var data []byte
	if name != base {
		if data, err = fs.side(filepath.Join(dir, name)); err != nil {
			return "", nil, err
		}
	}
	if data == nil {
		return "", nil, noTokens("token ids of the prompt are not in an answer: put the request beside it (request_0.json for response_0.json)")
	}
	if how := compression(data); how != "" {
		data, err = decompress(data, how)
	}
	if err == nil {
		req, err = sglang.DecodeRequest(data)
	}
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	return name, req, nil
}

// noTokens refuses an answer whose rows have no token ids.
func noTokens(f string, args ...any) error {
	return &format.DecodeError{Format: "SGLang answer", Offset: -1, Kind: format.ErrUnsupported, Err: fmt.Errorf(f, args...)}
}

// loadArrays makes one record of the .npy files of a unit.
func loadArrays(l *loaded, u unit, facts producer.Facts) error {
	rec := &format.Record{}
	for i, f := range l.files {
		name := filepath.Base(u.files[i])
		t, err := npy.Decode(f.Bytes())
		if err != nil {
			if len(l.files) > 1 {
				err = fmt.Errorf("%s: %w", name, err)
			}
			return err
		}
		t.Name = strings.TrimSuffix(name, arraySuffix)
		rec.Fields = append(rec.Fields, format.Field{Key: t.Name, Value: t})
	}
	l.container, l.value = "npy arrays", rec
	return assemble(l, []producer.Dump{{Container: producer.Arrays, Value: rec}}, facts)
}
