// The properties of json-property.test.ts, over more values.

import { testProperties } from "../../../test/kernel/json-properties.ts";

testProperties(6_000);
