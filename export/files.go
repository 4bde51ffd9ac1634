package export

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"

	"hsx/format/producer"
)

// The files of the export itself. No name of a sample begins with ownPrefix.
const (
	ownPrefix   = "hsx-export"
	journalName = ownPrefix + ".jsonl"
	mappingName = ownPrefix + ".json"
)

// sampleFile is the file of sample number n of a split, or its directory where each
// tensor is a file. Readers that find files by their suffix get directories of a size
// that a file system bears.
func sampleFile(t producer.TargetDescription, n int, id string) string {
	group := func(size int) string {
		first := n / size * size
		return fmt.Sprintf("rows_%d-%d/data_%d.ckpt", first, first+size, n)
	}
	switch {
	case t.Dataset:
		return fmt.Sprintf("hidden_states/hs_%d.safetensors", n)
	case t.Name == "angelslim":
		return group(5000)
	case t.Container == producer.Torch && t.Name != "modelopt":
		return group(2000)
	case t.Container == producer.Torch:
		return plainName(id) + ".pt"
	case t.Container == producer.Safetensors:
		return plainName(id) + ".safetensors"
	}
	return plainName(id)
}

// plainName makes a file name of an id: equal names mean equal ids. What is no plain
// character is written as % and its two hexadecimal digits.
func plainName(id string) string {
	const longest, kept = 180, 100 // bytes; file systems take 255, and suffixes follow
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; !isPlain(c) || i == 0 && (c == '.' || strings.HasPrefix(id, ownPrefix)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if b.Len() <= longest {
		return b.String()
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s-%x", b.String()[:kept], sum[:16])
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

// arrowFile is file i of n of a Hugging Face dataset.
func arrowFile(i, n int) string { return fmt.Sprintf("data-%05d-of-%05d.arrow", i, n) }

// prefixOf is the directory of the members of a torch archive, as torch.save names it.
func prefixOf(name string) string {
	base := path.Base(name)
	return strings.TrimSuffix(base, path.Ext(base))
}
