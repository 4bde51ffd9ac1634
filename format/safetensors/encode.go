package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"hsx/format"
)

// Encode writes a file of tensors and, if there is any, metadata. Equal arguments
// give equal bytes.
//
// The tensors must be dense and their names distinct. They are written with the
// largest element type first, otherwise in the order given: with a header padded
// to 8 bytes that aligns each tensor to its elements, which torch demands of a
// file that it maps.
func Encode(w io.Writer, tensors []*format.Tensor, metadata map[string]string) error {
	sorted := slices.Clone(tensors)
	slices.SortStableFunc(sorted, func(a, b *format.Tensor) int {
		return cmp.Compare(b.DType.Size(), a.DType.Size())
	})
	head, err := renderHeader(sorted, metadata)
	if err != nil {
		return fmt.Errorf("encode safetensors: %w", err)
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range sorted {
		if _, err := w.Write(t.Data[:denseBytes(t)]); err != nil {
			return err
		}
	}
	return nil
}

// renderHeader is the length and the padded JSON for tensors in the order of their data.
func renderHeader(tensors []*format.Tensor, metadata map[string]string) ([]byte, error) {
	b := append(make([]byte, lengthBytes), '{')
	if len(metadata) > 0 {
		b = append(quote(b, metadataKey), ":{"...)
		for i, k := range slices.Sorted(maps.Keys(metadata)) {
			if err := checkName(k); err != nil {
				return nil, fmt.Errorf("metadata: %w", err)
			}
			if !utf8.ValidString(metadata[k]) {
				return nil, fmt.Errorf("metadata: the value of %q is not valid UTF-8", k)
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = quote(append(quote(b, k), ':'), metadata[k])
		}
		b = append(b, '}')
	}
	seen := map[string]bool{metadataKey: true}
	begin := int64(0)
	for _, t := range tensors {
		if err := checkTensor(t); err != nil {
			return nil, err
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor name %q is taken", t.Name)
		}
		seen[t.Name] = true
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		end := begin + denseBytes(t)
		b = append(quote(b, t.Name), `:{"dtype":"`...)
		b = append(append(b, dtypeName(t.DType)...), `","shape":[`...)
		for i, d := range t.Shape {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, d, 10)
		}
		b = fmt.Appendf(b, `],"data_offsets":[%d,%d]}`, begin, end)
		begin = end
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	n := len(b) - lengthBytes
	if n > maxHeader {
		return nil, fmt.Errorf("header has %d bytes, want at most %d", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(n))
	return b, nil
}

func checkTensor(t *format.Tensor) error {
	if err := checkName(t.Name); err != nil {
		return err
	}
	if err := t.Check(); err != nil {
		return err
	}
	if !t.Dense() {
		return fmt.Errorf("tensor %q of shape %v has strides %v, want a dense one", t.Name, t.Shape, t.Strides)
	}
	if len(t.Shape) > maxDims {
		return fmt.Errorf("tensor %q has %d dimensions, want at most %d", t.Name, len(t.Shape), maxDims)
	}
	return nil
}

// checkName refuses what Decode would refuse.
func checkName(s string) error {
	if len(s) > maxName {
		return fmt.Errorf("name %.40q has %d bytes, want at most %d", s, len(s), maxName)
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, utf8.RuneError) {
		return fmt.Errorf("name %q is not valid Unicode", s)
	}
	return nil
}

// denseBytes is the size of a checked tensor; a view may have more bytes behind it.
func denseBytes(t *format.Tensor) int64 {
	n, _ := format.Elems(t.Shape)
	return n * int64(t.DType.Size())
}

func quote(b []byte, s string) []byte {
	q, _ := json.Marshal(s) // a string always has a JSON form
	return append(b, q...)
}
