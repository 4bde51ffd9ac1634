// Package layering holds the rule of which package may import which. It has this
// test and no code: a new package, or a new direction, is entered here by somebody.
// Imports of tests are free.
package layering_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestImports(t *testing.T) {
	t.Parallel()
	const codecs = "format format/npy format/safetensors format/torch format/hfdata format/sglang format/producer "
	allowed := map[string]string{ // package → what it may import of the module
		"format":              "",
		"format/npy":          "format internal/strided",
		"format/safetensors":  "format",
		"format/torch":        "format internal/strided",
		"format/hfdata":       "format internal/arrowmsg",
		"format/sglang":       "format",
		"format/producer":     "format",
		"internal/arrowmsg":   "",
		"internal/atomicfile": "",
		"internal/mapped":     "",
		"internal/strided":    "",
		"internal/zhuff":      "",
		"internal/chart":      "",
		"internal/simserver":  "",
		"scripts/benchpage":   "internal/chart",
		"internal/layering":   "",
		"internal/objstore":   "",
		"internal/faultproxy": "",                           // for tests: no package may import it
		"internal/hsxtest":    "format internal/atomicfile", // for tests: no package may import it
		"capture":             codecs + "internal/mapped",
		"capture/flight":      "format capture/receive internal/arrowmsg internal/mapped",
		"capture/live":        "format format/producer format/sglang capture",
		"capture/receive":     "format format/safetensors format/producer capture internal/mapped",
		"shard":               "format internal/arrowmsg internal/atomicfile internal/mapped internal/zhuff",
		"validate":            "format shard",
		"validate/report":     "validate internal/chart",
		"export":              codecs + "shard internal/atomicfile",
		"bench/stats":         "",
		"bench/prompts":       "",
		"bench/server":        "",
		"bench":               "bench/stats bench/prompts bench/server",
		"bench/report":        "bench bench/stats bench/server internal/chart",
		"cmd/hsx": codecs + "capture capture/flight capture/live capture/receive shard validate validate/report export bench bench/stats bench/prompts bench/server bench/report " +
			"internal/atomicfile internal/mapped internal/objstore internal/simserver",
	}
	owners := map[string]string{ // dependency that must not spread → the packages that may import it
		"github.com/apache/arrow": "shard export capture/flight",

		"github.com/sbinet/npyio":        "format/npy",
		"github.com/zeebo/xxh3":          "shard validate export capture/flight",
		"gonum.org/v1/plot":              "internal/chart",
		"gonum.org/v1/gonum":             "bench bench/stats",
		"github.com/spf13/cobra":         "cmd/hsx",
		"github.com/schollz/progressbar": "cmd/hsx",
		"github.com/fsnotify/fsnotify":   "capture",
		"gocloud.dev":                    "internal/objstore",
		"github.com/aws":                 "internal/objstore",
		"cloud.google.com/go":            "internal/objstore",
		"google.golang.org/api":          "internal/objstore",
		"github.com/prometheus":          "capture/receive",
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "hsx/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatalf("read go list: %v", err)
		}
		name := strings.TrimPrefix(p.ImportPath, "hsx/")
		own, known := allowed[name]
		if !known {
			t.Errorf("package %s is not in the table, want an entry that says what it may import", name)
		}
		for _, imp := range p.Imports {
			if of, ours := strings.CutPrefix(imp, "hsx/"); ours && !slices.Contains(strings.Fields(own), of) {
				t.Errorf("%s imports %s, want only %q of the module", name, of, own)
			} else if name == "format" && strings.Contains(imp, ".") {
				t.Errorf("format imports %s, want the standard library alone", imp)
			}
			for dep, may := range owners {
				if strings.HasPrefix(imp, dep) && !slices.Contains(strings.Fields(may), name) {
					t.Errorf("%s imports %s, want it only in %s", name, imp, may)
				}
			}
		}
	}
}
