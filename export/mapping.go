package export

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"

	"hsx/format"
	"hsx/format/npy"
	"hsx/format/torch"
	"hsx/internal/atomicfile"
	"hsx/shard"
)

// Mapping is what lies beside the data as hsx-export.json: which layers it holds, in which
// form, and where it is from.
type Mapping struct {
	Format    string `json:"format"` // "hsx-export"
	Version   int    `json:"version"`
	WrittenBy string `json:"written_by"`
	settings
	Producer   string        `json:"producer"` // of the dataset
	Target     format.Target `json:"target"`
	HiddenSize int           `json:"hidden_size"`
	DTypes     []string      `json:"dtypes"` // of the states: of each layer, then of the final
	Boundary   []int         `json:"boundary"`
	Convention string        `json:"convention"` // of the tool that reads the files
	IDs        []int         `json:"ids"`        // the layers in that convention
	Readers    []Reader      `json:"readers"`
	Samples    int           `json:"samples"`
	Tokens     int64         `json:"tokens"`
	Splits     []SplitCount  `json:"splits"`
}

// Mapping is the mapping of the export.
func (p *Plan) Mapping() Mapping {
	m := p.ds.Manifest()
	out := Mapping{
		Format: "hsx-export", Version: 1, WrittenBy: p.opt.WrittenBy, settings: p.settings(),
		Producer: m.Producer, Target: p.opt.Target, HiddenSize: m.HiddenSize, DTypes: []string{},
		Boundary: ids(p.Layers, format.Boundary), Convention: p.target.Convention.String(), IDs: ids(p.Layers, p.target.Convention),
		Readers: p.readers, Samples: p.Samples, Tokens: p.Tokens, Splits: p.Splits,
	}
	for _, s := range p.states {
		out.DTypes = append(out.DTypes, s.DType.String())
	}
	return out
}

func ids(layers format.Layers, c format.Convention) []int {
	out := []int{}
	for _, l := range layers {
		out = append(out, c.ID(l))
	}
	return out
}

func (p *Plan) settings() settings {
	o := p.opt
	s := settings{
		To: p.target.Name, Dataset: p.source, Layers: ids(p.Layers, format.PostLayer), Final: "none",
		Select: o.Select, MinTokens: o.MinTokens, MaxTokens: o.MaxTokens, Limit: o.Limit, Shuffle: o.Shuffle, Seed: o.Seed, Split: append([]Split{}, o.Splits...),
	}
	if p.final() != nil {
		s.Final = p.Final.String()
	}
	if p.norm != nil {
		s.Norm = fmt.Sprintf("%s, weights %016x", p.norm, p.norm.digest())
	}
	return s
}

// digestOf is the XXH3-128 of a manifest, by which states of a dataset are told apart.
func digestOf(m *shard.Manifest) (string, error) {
	data, err := json.Marshal(m)
	return shard.Digest(xxh3.Hash128(data).Bytes()).String(), err
}

// writeRest writes what lies beside the samples, the mapping last: where it is, the export
// is complete.
func (p *Plan) writeRest(fsys atomicfile.FS, dir string) error {
	files, err := p.restFiles()
	if err != nil {
		return err
	}
	mapping, err := json.MarshalIndent(p.Mapping(), "", "  ")
	if err != nil {
		return err
	}
	for _, s := range p.Splits {
		if err := atomicfile.MkdirAll(fsys, filepath.Join(dir, s.Name)); err != nil {
			return err
		}
	}
	for _, f := range append(files, restFile{mappingName, append(mapping, '\n')}) {
		name := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := atomicfile.MkdirAll(fsys, filepath.Dir(name)); err != nil {
			return err
		}
		if err := atomicfile.Write(fsys, name, f.data); err != nil {
			return err
		}
	}
	return nil
}

type restFile struct {
	name string
	data []byte
}

func (p *Plan) restFiles() ([]restFile, error) {
	files, err := p.vocabFiles()
	if err != nil {
		return nil, err
	}
	if p.target.Name != datasets && !p.target.Dataset {
		return files, nil
	}
	names := []string{}
	for _, s := range p.Splits {
		hf, err := p.hfFiles(s.Name)
		if err != nil {
			return nil, err
		}
		for _, name := range []string{"dataset_info.json", "state.json"} {
			files = append(files, restFile{path.Join(s.Name, name), hf[name]})
		}
		names = append(names, s.Name)
	}
	if len(p.opt.Splits) > 0 {
		data, err := json.Marshal(map[string][]string{"splits": names})
		if err != nil {
			return nil, err
		}
		files = append(files, restFile{"dataset_dict.json", data})
	}
	return files, nil
}

// splitName takes apart the name of a file right below its split's directory.
func splitName(name string) (split, file string) {
	split, file = path.Split(name)
	return strings.TrimSuffix(split, "/"), file
}

// checkVocabMap refuses a vocabulary map that the reader has no use for, or that is none.
func (p *Plan) checkVocabMap() error {
	r := p.opt.VocabMap
	if r == nil {
		return nil
	}
	if p.target.Engine != "specforge" && p.target.Engine != "angelslim" && p.target.Engine != "speculators" {
		return fmt.Errorf("%s has no file for a draft's vocabulary map", p.target.Name)
	}
	d2t, t2d := r.Tensor("d2t"), r.Tensor("t2d")
	if d2t == nil || t2d == nil {
		return errors.New("draft has no vocabulary map, want the tensors d2t and t2d")
	}
	if err := errors.Join(d2t.Check(), t2d.Check()); err != nil {
		return err
	}
	if d2t.DType != format.Int64 || len(d2t.Shape) != 1 || !d2t.Dense() || t2d.DType != format.Bool || len(t2d.Shape) != 1 || !t2d.Dense() {
		return fmt.Errorf("vocabulary map of the draft has d2t %s %v and t2d %s %v, want int64 and bool of one dimension", d2t.DType, d2t.Shape, t2d.DType, t2d.Shape)
	}
	// What of t2d is not named by d2t is left at the end.
	left := bytes.Clone(t2d.Data)
	offsets := format.Ints{DType: format.Int64, N: int(d2t.Shape[0]), Stride: 8, Data: d2t.Data}
	for i := range offsets.N {
		id := int64(i) + offsets.At(i) // wraps around to what is out of range too
		if id < 0 || id >= t2d.Shape[0] || left[id] == 0 {
			return fmt.Errorf("vocabulary map of the draft is none: d2t[%d] is %d, an offset that makes id %d, and t2d has no such id, or d2t has it twice", i, offsets.At(i), id)
		}
		left[id] = 0
	}
	if more := len(left) - bytes.Count(left, []byte{0}); more > 0 {
		return fmt.Errorf("vocabulary map of the draft is none: t2d has %d ids that d2t, of %d, has not", more, offsets.N)
	}
	return nil
}

// vocabFiles are the files of the vocabulary map, where the reader looks for them.
func (p *Plan) vocabFiles() ([]restFile, error) {
	if p.opt.VocabMap == nil {
		return nil, nil
	}
	d2t, t2d := p.opt.VocabMap.Tensor("d2t"), p.opt.VocabMap.Tensor("t2d")
	var files []restFile
	var b bytes.Buffer
	if p.target.Dataset {
		for name, t := range map[string]*format.Tensor{"d2t.npy": d2t, "t2d.npy": t2d} {
			b.Reset()
			if err := npy.Encode(&b, t); err != nil {
				return nil, err
			}
			files = append(files, restFile{name, bytes.Clone(b.Bytes())})
		}
		return files, nil
	}
	name := "vocab_mapping.pt"
	if p.target.Engine == "specforge" {
		name = "vocab_mapping/vocab_mapping.pt"
	}
	rec := &format.Record{Fields: []format.Field{{Key: "d2t", Value: d2t}, {Key: "t2d", Value: t2d}}}
	if err := torch.Encode(&b, prefixOf(name), rec); err != nil {
		return nil, err
	}
	return []restFile{{name, b.Bytes()}}, nil
}

// digest tells norms with other weights apart.
func (n *Norm) digest() uint64 {
	var h xxh3.Hasher
	for _, w := range n.weights[format.Float32] {
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(w))) // never fails
	}
	return h.Sum64()
}
