/**
 * Goal: whatever the JSON codec takes comes back equal, and whatever it is given, it refuses in its own words or takes it.
 * Method: properties over values that are made to look like tags.
 */

import { testProperties } from "../../../test/kernel/json-properties.ts";

testProperties(600);
