import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line programs one after the other in one JVM: starting a JVM for each costs
 * more than the programs do.
 *
 * <p>A line in: the main class, its arguments, and standard input, each but the class in base64,
 * separated by tabs. A line out: the exit code, standard output and standard error.
 */
public final class ToolRunner {
    /** Thrown where a program would have ended the process. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
    }

    private static final List<Runnable> hooks = new ArrayList<>();
    private static Integer exitCode;

    private ToolRunner() {}

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Exit.setExitProcedure((code, message) -> end(code, message));
        Exit.setHaltProcedure((code, message) -> end(code, message));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        answers.println("ready");
        answers.flush();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(run(line.split("\t", -1)));
            answers.flush();
        }
    }

    private static void end(int code, String message) {
        if (exitCode == null) {
            exitCode = code;
            if (message != null) {
                System.err.println(message);
            }
            // Some programs catch everything, this too, and print it: nobody would have seen that.
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Ended();
    }

    private static String run(String[] request) throws Exception {
        List<String> arguments = new ArrayList<>();
        for (int i = 1; i < request.length - 1; i++) {
            arguments.add(new String(decode(request[i]), StandardCharsets.UTF_8));
        }
        InputStream oldIn = System.in;
        PrintStream oldOut = System.out;
        PrintStream oldErr = System.err;
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream capturedOut = new PrintStream(out, true, StandardCharsets.UTF_8);
        PrintStream capturedErr = new PrintStream(err, true, StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(decode(request[request.length - 1])));
        System.setOut(capturedOut);
        System.setErr(capturedErr);
        exitCode = null;
        hooks.clear();
        try {
            Class.forName(request[0])
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                StringWriter trace = new StringWriter();
                thrown.getCause().printStackTrace(new PrintWriter(trace));
                System.err.println(trace);
                exitCode = exitCode == null ? Integer.valueOf(1) : exitCode;
            }
        } finally {
            // What the end of the process would have run: some programs flush only then.
            System.setOut(capturedOut);
            System.setErr(capturedErr);
            hooks.forEach(Runnable::run);
            System.setIn(oldIn);
            System.setOut(oldOut);
            System.setErr(oldErr);
        }
        int code = exitCode == null ? 0 : exitCode;
        return code + "\t" + encode(out.toByteArray()) + "\t" + encode(err.toByteArray());
    }

    private static byte[] decode(String text) {
        return Base64.getDecoder().decode(text);
    }

    private static String encode(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
