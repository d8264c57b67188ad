import messages from "messages:en";
import strings from "./strings/en.json";

export default { strings, messages };
