package main

import (
	"fmt"
	"strconv"
	"strings"
)

// serverVersion is the TensorFlow Serving release whose behaviour is simulated.
type serverVersion struct{ major, minor, patch int }

const (
	oldestMinor = 10 // flag tables are known from 2.10 on
	newestMinor = 20
)

// neverReleased lists versions that exist neither as a tag nor as a package.
var neverReleased = map[serverVersion]bool{{2, 15, 0}: true, {2, 16, 0}: true}

func (v serverVersion) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

func parseVersion(text string) (serverVersion, error) {
	fields := strings.Split(text, ".")
	numbers := make([]int, len(fields))
	for i, field := range fields {
		number, err := strconv.Atoi(field)
		if err != nil {
			return serverVersion{}, fmt.Errorf("TF_SERVING_SIMULATED_VERSION=%q: want X.Y.Z, such as 2.14.1", text)
		}
		numbers[i] = number
	}
	if len(numbers) != 3 {
		return serverVersion{}, fmt.Errorf("TF_SERVING_SIMULATED_VERSION=%q: want X.Y.Z, such as 2.14.1", text)
	}
	v := serverVersion{numbers[0], numbers[1], numbers[2]}
	if neverReleased[v] {
		return v, fmt.Errorf("TF_SERVING_SIMULATED_VERSION=%s: there is no such release; take %d.%d.1", v, v.major, v.minor)
	}
	if v.major != 2 || v.minor < oldestMinor || v.minor > newestMinor {
		return v, fmt.Errorf("TF_SERVING_SIMULATED_VERSION=%s: 2.%d to 2.%d are simulated", v, oldestMinor, newestMinor)
	}
	return v, nil
}
