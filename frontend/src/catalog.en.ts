import messages from "messages:en";
import strings from "strings:en";

export default { strings, messages };
